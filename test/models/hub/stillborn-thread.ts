/** A thread of a pool under test that never comes to its first task. */
process.exit(3);
