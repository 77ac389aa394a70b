/** The measuring process of the `lease` benchmark: it talks to the broker and to the bare sockets beside it, in turns. */
import { defaultLimits, protocolVersion } from '../../protocol/index.js';
import { connect, openChannel, roleProof, type Channel } from '../../protocol/node/index.js';
import { releaseFrame, requestFrame } from './frames.js';
import { microsecondsSince, percentilesOf, type Percentiles } from './percentiles.js';
import { openPingPong } from './ping-pong.js';

/** What the hosting process hands over in the environment. */
export interface LeasePeerTask {
  readonly brokerSocket: string;
  readonly secret: string;
  readonly bytesSocket: string;
  readonly codecSocket: string;
  readonly device: string;
  readonly rounds: number;
  readonly warmUp: number;
  readonly repeats: number;
  /** Grants to make afterwards, several in the air at once, to see that nothing grows. */
  readonly grants: number;
}

export interface LeaseRound {
  readonly lease: Percentiles;
  readonly codec: Percentiles;
  readonly bytes: Percentiles;
}

const inTheAir = 64;

/** Round trips of one kind before the next has its turn. */
const roundsInTurn = 100;

type Measure = (rounds: number) => Promise<Float64Array>;

async function main(): Promise<void> {
  const task = JSON.parse(process.env['LEASEHOLD_BENCH'] ?? '{}') as LeasePeerTask;
  const channel = await attach(task);
  const [bytes, codec] = [await openPingPong(task.bytesSocket, 'bytes', task.device), await openPingPong(task.codecSocket, 'codec', task.device)];
  const lease: Measure = (rounds) => measureLease(channel, task.device, rounds);
  const rounds: LeaseRound[] = [];
  for (let repeat = 0; repeat < task.repeats; repeat++) {
    const [ofLease, ofCodec, ofBytes] = await inTurns([lease, (rounds) => codec.measure(rounds), (rounds) => bytes.measure(rounds)], task);
    rounds.push({ lease: ofLease, codec: ofCodec, bytes: ofBytes });
  }
  bytes.close();
  codec.close();
  process.send?.({ rounds });
  await grantMany(channel, task);
  process.send?.({ done: true });
  channel.end();
}

/** Measures the three in short turns, so that what else the machine does falls on all of them alike. */
async function inTurns(measures: readonly [Measure, Measure, Measure], { rounds, warmUp }: LeasePeerTask): Promise<[Percentiles, Percentiles, Percentiles]> {
  for (const measure of measures) await measure(warmUp);
  const durations = measures.map(() => new Float64Array(rounds)) as [Float64Array, Float64Array, Float64Array];
  for (let done = 0; done < rounds; done += roundsInTurn) {
    for (const [at, measure] of measures.entries()) durations[at]?.set(await measure(Math.min(roundsInTurn, rounds - done)), done);
  }
  const [first, second, third] = durations;
  return [percentilesOf(first), percentilesOf(second), percentilesOf(third)];
}

/** A holder's session, by the frames any language would send. */
async function attach(task: LeasePeerTask): Promise<Channel<'control'>> {
  const stream = await connect({ path: task.brokerSocket, timeoutMs: 10_000 });
  const channel = openChannel(stream, {
    plane: 'control', side: 'holder', limits: defaultLimits,
    handlers: { onMessage: () => undefined, onClose: () => undefined },
  });
  await channel.request(
    { type: 'hello', protocol: protocolVersion, role: 'holder', spawn: null, proof: roleProof(task.secret, 'holder'), pid: process.pid, name: 'bench', resume: null },
    { timeoutMs: 10_000 },
  );
  const beat = setInterval(() => {
    channel.send({ type: 'heartbeat', atUs: Number(process.hrtime.bigint() / 1000n), reserved: [], inFlight: 0, loopDelayMs: 0 });
  }, defaultLimits.heartbeatIntervalMs);
  beat.unref();
  return channel;
}

async function measureLease(channel: Channel<'control'>, device: string, rounds: number): Promise<Float64Array> {
  const durations = new Float64Array(rounds);
  let lease = await grant(channel, device, 'bench');
  for (let round = 0; round < rounds; round++) {
    const start = process.hrtime.bigint();
    channel.send(releaseFrame(lease));
    lease = await grant(channel, device, 'bench');
    durations[round] = microsecondsSince(start);
  }
  channel.send(releaseFrame(lease));
  return durations;
}

async function grantMany(channel: Channel<'control'>, task: LeasePeerTask): Promise<void> {
  let started = 0;
  const lane = async (number: number): Promise<void> => {
    while (started < task.grants) {
      started += 1;
      channel.send(releaseFrame(await grant(channel, task.device, `bench-${String(number)}`)));
    }
  };
  await Promise.all(Array.from({ length: Math.min(inTheAir, task.grants) }, (_, number) => lane(number)));
}

async function grant(channel: Channel<'control'>, device: string, model: string): Promise<string> {
  const { id: _, ...request } = requestFrame(1, device);
  const answer = await channel.request({ ...request, model }, { timeoutMs: 60_000 });
  if (answer.type !== 'grant') throw new Error(`the broker answered ${JSON.stringify(answer)}`);
  return answer.lease;
}

await main();
