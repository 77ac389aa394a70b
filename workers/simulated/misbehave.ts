/** What a badly behaved process does before it is ready: floods, children, deafness. */
import { spawn } from 'node:child_process';
import type { EngineContext } from '../runtime/engine.js';
import type { ProcessScript } from './script.js';

export async function misbehave(script: ProcessScript, context: EngineContext): Promise<void> {
  if (script.ignoreSigterm) {
    process.removeAllListeners('SIGTERM');
    process.on('SIGTERM', () => undefined);
  }
  for (let index = 0; index < script.grandchildren; index++) startGrandchild(script.grandchildrenDetached);
  for (let index = 0; index < script.logLines; index++) context.log('info', `line ${String(index)} of ${String(script.logLines)}`);
  if (script.outputBytes > 0) await Promise.all([flood(process.stdout, script), flood(process.stderr, script)]);
}

/** A child that outlives us unless somebody ends it; it carries our environment and with it our token. */
function startGrandchild(detached: boolean): void {
  const child = spawn('sleep', ['86400'], { stdio: 'ignore', detached });
  child.unref();
}

/** Writes until everything has been taken: a reader that does not drain its end stops us here (B94). */
async function flood(stream: NodeJS.WriteStream, script: ProcessScript): Promise<void> {
  const lineBytes = Math.max(1, Math.min(script.outputLineBytes, script.outputBytes));
  const line = 'x'.repeat(lineBytes - 1) + '\n';
  for (let written = 0; written < script.outputBytes; written += line.length) {
    await new Promise<void>((resolve, reject) => stream.write(line, (error) => (error ? reject(error) : resolve())));
  }
}
