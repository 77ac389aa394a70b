/** Options of a thread that loads nothing that its process was told to load first (tracers, loaders of tests): it would cost time and memory in each. */
export function bareThread(): { readonly execArgv: string[]; readonly env: NodeJS.ProcessEnv } {
  return { execArgv: [], env: { ...process.env, NODE_OPTIONS: '' } };
}
