/** A process for `system.kill`: it ignores SIGTERM, says so, and ends by itself should everybody forget it. */
process.on('SIGTERM', () => undefined);
setTimeout(() => process.exit(), 60_000);
process.stdout.write('deaf\n');
