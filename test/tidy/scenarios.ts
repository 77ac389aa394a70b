/** Scenarios from the field that the broker answers for: each has a test with its id in the title. */
export const scenarios: readonly string[] = [
  // Estimation and admission
  'B01', 'B02', 'B04', 'B05', 'B07', 'B08', 'B10', 'B11', 'B13', 'B14', 'B16', 'B17', 'B19', 'B20', 'B22', 'B23', 'B25', 'B190',
  // Lease accounting, identity and time
  'B26', 'B28', 'B29', 'B31', 'B32', 'B34', 'B191',
  // Eviction and freeing
  'B35', 'B37', 'B38', 'B40', 'B41', 'B43', 'B44', 'B46', 'B47', 'B49', 'B50', 'B52', 'B53', 'B55', 'B56', 'B58', 'B193', 'B194',
  // Concurrency, queue, deadlock
  'B59', 'B61', 'B62', 'B64', 'B65', 'B67', 'B68', 'B73', 'B74', 'B76', 'B77', 'B79', 'B80', 'B82', 'B83',
  // Crash, hang, zombie
  'B85', 'B86', 'B88', 'B94',
  // Several cards
  'B97', 'B98', 'B100', 'B101', 'B103', 'B104', 'B106', 'B107', 'B109', 'B190', 'R122', 'R123', 'R125', 'R126',
  // Foreign processes and cards that spill
  'B110', 'B112', 'B113', 'B115',
  // The machine's memory
  'B184', 'B185', 'B187', 'B188', 'B211',
  // Transport and framing
  'B175', 'B176', 'B178', 'B179', 'B181', 'B182',
  // Model files
  'B158', 'B160', 'B161', 'B163', 'B164', 'B166', 'B167', 'B169', 'B170', 'B172', 'B173',
  // Hub download, staging, verification
  'B142', 'B143', 'B145', 'B146', 'B148', 'B149', 'B151', 'B152', 'B154', 'B155', 'B157', 'B206', 'B208', 'B209',
  // Profiles and the store
  'R127', 'R143', 'R151', 'R153', 'R154', 'R155', 'R156', 'R158', 'R159', 'R171', 'R173', 'R179', 'R180', 'R246', 'R280',
  // Victims, honest bytes, reconciliation, records
  'R36', 'R37', 'R40', 'R43', 'R44', 'R46', 'R47', 'R48', 'R49', 'R50', 'R52', 'R54', 'R55', 'R56',
  // Acceptance
  'R265', 'R266', 'R267', 'R268', 'R269', 'R270', 'R271', 'R272', 'R273', 'R274', 'R275', 'R276', 'R277', 'R278',
];
