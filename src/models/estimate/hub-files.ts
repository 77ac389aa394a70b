/** The files of a model that is still on a hub: headers by ranges, at one commit, and no byte of a weight. */
import type { HubClient } from '../hub/client.js';
import { HubFileSource } from '../hub/file-source.js';
import type { Inspection } from '../inspect/inspect.js';
import { unusableFile } from '../formats/fault.js';
import type { RepositoryFile } from '../hub/repository.js';
import type { ModelFiles, OpenSource } from './read-facts.js';

/** Those that an inspection found, its projector with them. */
export function hubFiles(client: HubClient, { repository, files, projector }: Pick<Inspection, 'repository' | 'files' | 'projector'>): ModelFiles {
  const name = `${repository.name}@${repository.commit.slice(0, 8)}`;
  const open = (file: RepositoryFile): OpenSource => async () => new HubFileSource(client, repository, file);
  const parts = files.filter((file) => /\.gguf$/i.test(file.path) && file !== projector);
  if (parts.length > 0) return { format: 'gguf', name, parts: parts.map(open), projector: projector === null ? null : open(projector) };
  const config = repository.files.find(({ path }) => path === 'config.json');
  if (config === undefined) throw unusableFile(name, 'it has no config.json');
  return { format: 'safetensors', name, config: open(config), weights: files.filter(({ path }) => path.endsWith('.safetensors')).map(open) };
}
