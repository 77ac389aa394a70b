/** A command about what is staged on this machine. */
import type { Models } from '../../models/models.js';
import type { CommandContext } from '../context.js';

/** Calls `use` with the models of the user's store, under the limits of the configuration. */
export async function withModels<T>(context: CommandContext, use: (models: Models) => Promise<T>): Promise<T> {
  const { Models } = await import('../../models/models.js');
  const { options: { limits = {} } } = await context.config();
  const models = new Models({ env: context.io.env, cwd: context.io.cwd, limits });
  try {
    return await use(models);
  } finally {
    await models.close();
  }
}
