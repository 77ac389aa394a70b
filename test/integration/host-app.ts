/**
 * A program that embeds an orchestrator, for tests that need its process: options as JSON in the first argument, then
 * commands by line, and what comes of each told as a line of JSON. It ends by itself once it is closed.
 */
import { createInterface } from 'node:readline';
import { LeaseholdError, createOrchestrator, type Orchestrator, type OrchestratorOptions } from '../../src/index.js';

function say(event: string, facts: Readonly<Record<string, unknown>> = {}): void {
  process.stdout.write(`${JSON.stringify({ event, ...facts })}\n`);
}

function told(error: unknown): Readonly<Record<string, unknown>> {
  const { code, message, help, details } = LeaseholdError.from(error);
  return { code, message, help, details };
}

/** Keeps the loop from turning, as a host application does that computes. */
function block(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}

async function stream(orchestrator: Orchestrator, model: string): Promise<void> {
  let tokens = 0;
  for await (const token of orchestrator.generate(model, 'on and on', { maxTokens: 100_000 })) {
    tokens += token.ids.length;
    if (tokens === 1) say('streaming');
  }
  say('streamed', { tokens });
}

async function carryOut(orchestrator: Orchestrator, word: string, rest: readonly string[]): Promise<void> {
  const [model = '', text = ''] = rest;
  switch (word) {
    case 'load':
      await orchestrator.load(model);
      say('loaded', { model });
      return;
    case 'ask':
      say('answered', { ...await orchestrator.generate(model, text).result() });
      return;
    case 'stream':
      await stream(orchestrator, model);
      return;
    case 'lease': {
      const lease = await orchestrator.lease({ model: 'held', bytes: Number(model), onEvict: () => 'busy' });
      await lease.loaded({ residentBytes: Number(model) });
      say('leased', { lease: lease.lease });
      return;
    }
    case 'block':
      block(Number(model));
      say('blocked');
      return;
    case 'ledger':
      say('ledger', { ledger: await orchestrator.ledger() });
      return;
    case 'close':
      await orchestrator.close();
      process.stdin.destroy();
      say('closed');
      return;
    default:
      throw new Error(`no command ${word}`);
  }
}

async function main(): Promise<void> {
  const orchestrator = await createOrchestrator(JSON.parse(process.argv[2] ?? '{}') as OrchestratorOptions);
  const { bootId, broker } = await orchestrator.ledger();
  say('up', { owns: orchestrator.ownsBroker, bootId, brokerPid: broker.pid });
  createInterface({ input: process.stdin }).on('line', (line) => {
    const [word = '', ...rest] = line.split(' ');
    carryOut(orchestrator, word, rest).catch((error: unknown) => { say('failed', { word, ...told(error) }); });
  });
}

await main().catch((error: unknown) => {
  say('refused', told(error));
  process.exitCode = 1;
});
