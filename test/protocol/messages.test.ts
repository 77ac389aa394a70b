/** Messages: golden vectors, the schema, the session table, the error table, and the documents that are made from them. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import {
  brokenRelation, defaultLimits, durationMs, durationText, errorTable, LeaseholdError, limitMinimum, limitText, messageRules, planes, Session, validateMessage,
  type ErrorCode, type LimitName, type Plane, type SchemaDescription, type Sender,
} from '../../protocol/index.js';
import { createCodec, errorMessage, roleProof, spawnKey } from '../../protocol/node/index.js';
import { hex, root, vectorsOf, type Vector } from './support.js';

const codec = createCodec();
const vectors = [...vectorsOf('control'), ...vectorsOf('data')];

function bodyOf({ frame }: { readonly frame: string }): Buffer {
  return hex(frame).subarray(4);
}

t.test('golden vectors', async (t) => {
  t.test('every message of both planes has one', async (t) => {
    const having = new Set(vectors.map(({ plane, message }) => `${plane} ${message.type}`));
    const all = (['control', 'data'] as const).flatMap((plane) => Object.keys(planes[plane]).map((type) => `${plane} ${type}`));
    t.strictSame(all.filter((name) => !having.has(name)), []);
    t.equal(new Set(vectors.map(({ plane, name }) => `${plane} ${name}`)).size, vectors.length, 'no two have one name');
  });
  t.test('every field is seen present, null where it may be, and left out where it may be', async (t) => {
    const seen = new Set<string>();
    const wanted = new Set<string>();
    for (const plane of ['control', 'data'] as const) {
      for (const [type, definition] of Object.entries(planes[plane])) {
        shapesOf(definition.schema.description, `${plane} ${type}`, wanted);
        for (const { message } of vectors.filter((vector) => vector.plane === plane && vector.message.type === type)) {
          shapesIn(definition.schema.description, message, `${plane} ${type}`, seen);
        }
      }
    }
    t.strictSame([...wanted].filter((shape) => !seen.has(shape)), []);
    t.ok(wanted.size > 250, `${String(wanted.size)} shapes`);
  });
  t.test('each message encodes to its frame and decodes from it', async (t) => {
    for (const vector of vectors) {
      t.equal(Buffer.from(codec.encode(vector.message)).toString('hex'), vector.frame, vector.name);
      t.strictSame(codec.decode(bodyOf(vector)), vector.message);
      t.strictSame(validateMessage(vector.plane, vector.message), vector.message);
      t.equal(hex(vector.frame).readUInt32BE(0), bodyOf(vector).length);
    }
  });
  t.test('what must be refused is refused, by its code and field', async (t) => {
    for (const vector of vectorsOf('invalid').filter(({ limitBytes }) => limitBytes === undefined)) {
      const value = codec.decode(bodyOf(vector));
      const error = value instanceof LeaseholdError ? value : validateMessage(vector.plane, value);
      t.match(error, { code: vector.code, ...(vector.field === undefined ? {} : { details: { field: vector.field } }) }, vector.name);
    }
  });
  t.test('what no sender of ours writes is taken all the same', async (t) => {
    for (const vector of vectorsOf('accepted')) t.match(validateMessage(vector.plane, codec.decode(bodyOf(vector))), vector.message, vector.name);
  });
  t.test('a reader that shares no code with this one reads and writes the same bytes', async (t) => {
    const python = spawnSync('python3', ['-S', join(root, 'test/protocol/vectors_check.py')], { cwd: root, encoding: 'utf8' });
    const missing = (python.error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
    if (missing) t.comment('no python3 here: not compared');
    t.ok(missing || python.stdout.endsWith(`${String(vectors.length)} vectors agree\n`), `${python.stdout}${python.stderr}`);
    t.ok(missing || python.status === 0);
  });
});

/** A piece that several messages share counts once, under the names of its fields. */
function pieceOf(description: Extract<SchemaDescription, { kind: 'object' }>, path: string): string {
  return path.includes('.') ? `{${Object.keys(description.fields).join()}}` : path;
}

/** Every field and what may become of it, by path. */
function shapesOf(description: SchemaDescription, path: string, into: Set<string>): void {
  switch (description.kind) {
    case 'object':
      for (const [name, field] of Object.entries(description.fields)) shapesOf(field, `${pieceOf(description, path)}.${name}`, into);
      return;
    case 'list':
      shapesOf(description.item, `${path}[]`, into);
      return;
    case 'map':
      shapesOf(description.value, `${path}{}`, into);
      return;
    case 'nullable':
      into.add(`${path} null`);
      shapesOf(description.inner, path, into);
      return;
    case 'optional':
      into.add(`${path} left out`);
      shapesOf(description.inner, path, into);
      return;
    default:
      into.add(`${path} present`);
  }
}

function shapesIn(description: SchemaDescription, value: unknown, path: string, into: Set<string>): void {
  switch (description.kind) {
    case 'object':
      for (const [name, field] of Object.entries(description.fields)) {
        shapesIn(field, (value as Record<string, unknown>)[name], `${pieceOf(description, path)}.${name}`, into);
      }
      return;
    case 'list':
      for (const item of value as unknown[]) shapesIn(description.item, item, `${path}[]`, into);
      return;
    case 'map':
      for (const item of Object.values(value as object)) shapesIn(description.value, item, `${path}{}`, into);
      return;
    case 'nullable':
      if (value === null) into.add(`${path} null`);
      else shapesIn(description.inner, value, path, into);
      return;
    case 'optional':
      if (value === undefined) into.add(`${path} left out`);
      else shapesIn(description.inner, value, path, into);
      return;
    default:
      into.add(`${path} present`);
  }
}

t.test('validation', async (t) => {
  t.test('a fault in any field of any message is named by its path', async (t) => {
    let faults = 0;
    const unnamed = vectors.flatMap((vector) => {
      const description = planes[vector.plane][vector.message.type]!.schema.description;
      return [...breakages(description, vector.message, '')].flatMap(([field, broken]) => {
        faults += 1;
        const error = validateMessage(vector.plane, { ...(broken as object), type: vector.message.type });
        const named = error instanceof LeaseholdError && error.code === 'message_invalid' && error.details['field'] === field;
        return named ? [] : [`${vector.name}: ${field}: ${error instanceof LeaseholdError ? error.message : 'accepted'}`];
      });
    });
    t.strictSame(unnamed, []);
    t.ok(faults > 2_000, `${String(faults)} faults`);
  });
  t.test('the text says what the field must be', async (t) => {
    const error = validateMessage('control', { type: 'evicted', id: 1, freedBytes: -1 });
    t.equal((error as LeaseholdError).message, 'evicted.freedBytes must be an integer from 0 to 9007199254740991 (bytes).');
  });
  t.test('what has a name in its list has it there once: each part of a lease, each card of a reading', async (t) => {
    const text = JSON.stringify(planes.control);
    t.equal([...text.matchAll(/"distinctBy":"name"/g)].length, [...text.matchAll(/"upFront":/g)].length, 'every list of parts');
    t.equal([...text.matchAll(/"distinctBy":"device"/g)].length, [...text.matchAll(/"(floors|reserved)":\{/g)].length, 'floors and what is reserved');
    const { message } = vectorsOf('control').find(({ name }) => name === 'resize_lease: a gang, all or none')!;
    const twice = { ...message, also: [{ lease: 'b-l2', parts: ['context:1', 'context:2', 'context:1'].map((name) => ({ name, kind: 'context', bytes: 1, upFront: true })) }] };
    t.equal((validateMessage('control', twice) as LeaseholdError).message, 'resize_lease.also[0].parts[2].name must be another than that of an item before it: "context:1" is there twice.');
  });
  t.test('no field shares its name with what every object has', async (t) => {
    const names = [...JSON.stringify(planes).matchAll(/"(\w+)":\{"kind"/g)].map((match) => match[1] ?? '');
    t.ok(names.length > 100);
    t.strictSame(names.filter((name) => name in Object.prototype), []);
  });
});

/** Copies of `value` with one thing wrong in each, and the path that the fault must be found at. */
function* breakages(description: SchemaDescription, value: unknown, path: string): Generator<readonly [string, unknown]> {
  switch (description.kind) {
    case 'object':
      for (const [name, field] of Object.entries(description.fields)) {
        const present = value as Record<string, unknown>;
        const at = path === '' ? name : `${path}.${name}`;
        if (field.kind !== 'optional') yield [at, Object.fromEntries(Object.entries(present).filter(([key]) => key !== name))];
        for (const [where, broken] of breakages(field, present[name], at)) yield [where, { ...present, [name]: broken }];
      }
      if (path !== '') yield* wrong(path, ['x', 7, null, [], true]);
      return;
    case 'list': {
      const items = value as unknown[];
      for (const [index, item] of items.entries()) {
        for (const [where, broken] of breakages(description.item, item, `${path}[${String(index)}]`)) yield [where, replaced(items, index, broken)];
      }
      if (description.distinctBy !== undefined && items.length > 0) yield [`${path}[${String(items.length)}].${description.distinctBy}`, [...items, items[0]]];
      yield* wrong(path, ['x', 7, null, {}, new Array(description.itemsMax + 1).fill(items[0])]);
      return;
    }
    case 'map':
      for (const [key, item] of Object.entries(value as object)) {
        for (const [where, broken] of breakages(description.value, item, `${path}.${key}`)) yield [where, { ...(value as object), [key]: broken }];
      }
      yield* wrong(path, ['x', null, [], Object.fromEntries(Array.from({ length: description.entriesMax + 1 }, (_, index) => [`k${String(index)}`, '']))]);
      return;
    case 'nullable':
      if (value === null) yield* wrong(path, [Symbol('no value')]);
      else for (const [where, broken] of breakages(description.inner, value, path)) if (broken !== null || where !== path) yield [where, broken];
      return;
    case 'optional':
      yield* value === undefined ? wrong(path, [null, Symbol('no value')]) : breakages(description.inner, value, path);
      return;
    case 'integer':
      yield* wrong(path, [description.minimum - 1, description.maximum + 1, 0.5, NaN, Infinity, '1', true, null, 1n]);
      return;
    case 'number':
      yield* wrong(path, [description.minimum - 1e38, description.maximum * 2 + 1, NaN, '1', null]);
      return;
    case 'boolean':
      yield* wrong(path, [0, 1, 'true', null]);
      return;
    case 'choice':
      yield* wrong(path, ['', 'none of these', 0, null]);
      return;
    case 'string':
      yield* wrong(path, ['x'.repeat(description.charactersMax + 1), 7, null, ...(description.pattern === null ? [] : ['\n'])]);
  }
}

function* wrong(path: string, values: readonly unknown[]): Generator<readonly [string, unknown]> {
  for (const value of values) yield [path, value];
}

function replaced(items: readonly unknown[], index: number, item: unknown): unknown[] {
  return [...items.slice(0, index), item, ...items.slice(index + 1)];
}

t.test('sessions', async (t) => {
  const { transcripts } = JSON.parse(readFileSync(join(root, 'protocol/vectors/sessions.json'), 'utf8')) as {
    transcripts: { name: string; plane: Plane; steps: { from: Sender; message: Vector['message']; code?: string }[] }[];
  };
  for (const { name, plane, steps } of transcripts) {
    t.test(`R278: ${name}`, async (t) => {
      const other = steps.map(({ from }) => from).find((from) => from !== (plane === 'control' ? 'broker' : 'worker')) ?? 'client';
      const ends = plane === 'control' ? [new Session(plane, 'broker'), new Session(plane, other)] : [new Session(plane, 'worker'), new Session(plane, 'caller')];
      for (const { from, message, code } of steps) {
        const rule = messageRules[plane].get(message.type)!;
        const sender = ends.find(({ side }) => side === from) ?? ends[1]!;
        const receiver = ends.find((end) => end !== sender)!;
        t.equal(receiver.refuseReceiving(rule)?.code ?? null, code ?? null, `${from} sends ${message.type}`);
        if (from === sender.side) t.equal(sender.refuseSending(rule)?.code ?? null, code ?? null, 'and its own side says the same');
        if (code !== undefined) continue;
        for (const end of ends) end.advance(message.type, message.type === 'hello' ? (message['role'] as Sender) : null);
      }
    });
  }
  t.test('every type is a request, a notification or an answer, and answers answer something', async (t) => {
    for (const plane of ['control', 'data'] as const) {
      const rules = [...messageRules[plane].values()];
      for (const { type, kind, final, interim } of rules) {
        const fields = (planes[plane][type]!.schema.description as Extract<SchemaDescription, { kind: 'object' }>).fields;
        t.equal('id' in fields, kind !== 'notification', `${type} is a ${kind}`);
        t.ok([...final, ...interim].every((answer) => messageRules[plane].get(answer)?.kind === 'answer'), `${type} is answered by answers`);
        t.ok(kind === 'request' ? final.size > 0 : final.size + interim.size === 0);
        t.equal(final.has('error'), kind === 'request', `${type} can fail`);
      }
    }
  });
});

t.test('errors', async (t) => {
  const rows = Object.entries(errorTable) as [ErrorCode, { number: number; http: number; message: string; help: string }][];
  t.test('codes and numbers are unique, and every error says what to do', async (t) => {
    t.equal(new Set(rows.map(([, row]) => row.number)).size, rows.length);
    t.strictSame(rows.filter(([code, row]) => !/^[a-z][a-z0-9_]{0,63}$/.test(code) || row.help === '' || row.message === '' || row.http < 400 || row.http > 599).map(([code]) => code), []);
  });
  t.test('every count of bytes says that it is one', async (t) => {
    t.strictSame(rows.filter(([, row]) => /\{\w*[bB]ytes\}(?! bytes)/.test(`${row.message}${row.help}`)).map(([code]) => code), []);
    t.equal(new LeaseholdError('never_fits', { model: 'm', needBytes: 30, device: 'SIM-1', mostBytes: 26 }).message, 'm needs 30 bytes on SIM-1; at most 26 bytes could ever be had there.');
  });
  t.test('every error travels and comes out the same', async (t) => {
    for (const [code, row] of rows) {
      const names = [...`${row.message}${row.help}`.matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? '');
      const sent = new LeaseholdError(code, Object.fromEntries(names.map((name, index) => [name, index])));
      t.notMatch(sent.message, /[{}?]/, code);
      for (const plane of ['control', 'data'] as const) {
        const message = validateMessage(plane, codec.decode(Buffer.from(codec.encode(errorMessage(plane, 7, sent))).subarray(4)));
        const received = LeaseholdError.fromWire(message as { code: string; message: string; details: Record<string, string> });
        t.strictSame([received.code, received.message, received.details, received.retryable], [sent.code, sent.message, sent.details, sent.retryable]);
      }
    }
  });
  t.test('what is printed of one is its own: no figures of the table, no cause that says the same', async (t) => {
    const first = new Error('ENOENT');
    const inner = new LeaseholdError('model_invalid', { source: 'a@llama#1', reason: 'no such file' }, { cause: first });
    const error = new LeaseholdError('model_invalid', { source: 'a', reason: 'no such file' }, { cause: inner, help: 'Look again.' });
    t.equal(error.cause, first);
    t.strictSame(Object.keys(error), ['code', 'help', 'details']);
    t.match([error.name, error.number, error.http, error.retryable, error.help, String(error)], ['LeaseholdError', 504, 422, false, 'Look again.', 'LeaseholdError: a cannot be used: no such file.']);
    t.match(error.stack, /^LeaseholdError: a cannot be used/);
    t.equal(new LeaseholdError('internal', { reason: 'x' }, { cause: inner }).cause, inner, 'one that says something else is kept');
    t.equal('cause' in new LeaseholdError('closed', { what: 'x' }), false);
  });
  t.test('that no descriptor was left is told as that, whatever was to be opened for what', async (t) => {
    const system = (code: string): Error => Object.assign(new Error(`${code}: too many open files, open '/x'`), { code });
    const told = LeaseholdError.from(system('EMFILE'), 'engine_missing', { engine: 'llama' });
    t.match(told, { code: 'too_many_open_files', message: 'The limit of a process on open files is reached (EMFILE).', help: /ulimit -n/, details: { engine: 'llama', code: 'EMFILE' } });
    t.match(LeaseholdError.from(new Error('it failed', { cause: system('ENFILE') })), { code: 'too_many_open_files', message: /^The limit of the system/ });
    for (const other of [system('ENOENT'), 'EMFILE', null, undefined, { cause: null }, new Error('x', { cause: 'EMFILEX' })]) t.match(LeaseholdError.from(other, 'engine_missing'), { code: other === 'EMFILE' ? 'too_many_open_files' : 'engine_missing' });
  });
  t.test('times are told in the unit that fits, whatever a limit is set to', async (t) => {
    const told = [0, 250, 1_500, 90_000, 120_000, 312_400, 3_600_000, 5_400_000, 86_400_000, 273_600_000, 2_592_000_000].map(durationText);
    t.strictSame(told, ['0 ms', '250 ms', '1.5 s', '90 s', '2 min', '5 min 12 s', '60 min', '90 min', '24 h', '3 d 4 h', '30 d']);
    t.equal(new LeaseholdError('deadline_passed', { what: 'Room', deadlineMs: 86_400_000, reason: 'it was full' }).message, 'Room was not possible within 24 h: it was full.');
    t.equal(new LeaseholdError('deadline_passed', { what: 'Room', deadlineMs: 86_400_000, reason: 'x' }).details['deadlineMs'], '86400000', 'details are raw');
    t.match(durationMs().check(-1, ''), { expected: /\(ms: at most 30 d\)$/ });
  });
  t.test('a full queue is told by the limit that it is, its value, and when to come again', async (t) => {
    const error = new LeaseholdError('call_queue_full', { limit: 256, model: 'chat', retryAfterMs: 1_000 });
    t.match([error.retryable, error.retryAfterMs, error.http], [true, 1_000, 429]);
    t.equal(error.message, '256 calls already wait for chat, as many as may (limits.queuedCallsPerModelMax).');
    t.equal(error.help, 'It was not begun: send it again in 1 s or later. Or raise the limit (--limit queuedCallsPerModelMax=N), or give the model more contexts (parallel).');
    t.equal(new LeaseholdError('model_unknown', { model: 'x', known: '' }).retryAfterMs, null, 'where nobody has said');
    for (const code of ['too_many_sessions', 'too_many_own_sessions', 'too_many_requests', 'queue_full', 'too_many_leases', 'too_many_pins', 'too_many_workers', 'call_queue_full'] as const) {
      const { message } = new LeaseholdError(code, { limit: 7 });
      const [, name = ''] = /\(limits\.(\w+)\)/.exec(message) ?? [];
      t.ok(message.startsWith('7 ') && Object.hasOwn(defaultLimits, name), `${code}: ${message}`);
    }
  });
  t.test('details beyond what a message carries are shortened, not refused', async (t) => {
    const details = { ...Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`k${String(index)}`, 'v'.repeat(5_000)])), ['n'.repeat(500)]: '' };
    for (const plane of ['control', 'data'] as const) {
      const error = new LeaseholdError('internal', { reason: 'r'.repeat(9_000), ...details });
      t.notMatch(validateMessage(plane, errorMessage(plane, null, error)), { code: 'message_invalid' });
    }
  });
  t.test('what a stranger named changes no terminal: messages show it by its number, details keep it', async (t) => {
    const source = 'a\u001b[31mred\u009b2J\u202Egp.\u2028b';
    const error = new LeaseholdError('model_invalid', { source, reason: 'no such file' });
    t.equal(error.message, 'a\\u001b[31mred\\u009b2J\\u202egp.\\u2028b cannot be used: no such file.');
    t.equal(error.details['source'], source);
  });
  t.test('a code of a newer peer keeps its text', async (t) => {
    t.match(LeaseholdError.fromWire({ code: 'too_purple', message: 'It is purple.', details: {} }), { code: 'internal', message: /too_purple: It is purple\./ });
  });
});

t.test('limits hold their relations, and one that breaks one is named', async (t) => {
  t.equal(brokenRelation(defaultLimits), null);
  t.strictSame(brokenRelation({ ...defaultLimits, preAuthFrameBytesMax: defaultLimits.frameBytesMax + 1 })?.names, ['preAuthFrameBytesMax', 'frameBytesMax']);
  for (const name of Object.keys(defaultLimits) as LimitName[]) {
    const least = limitMinimum(name);
    t.strictSame(brokenRelation({ ...defaultLimits, [name]: least - 1 })?.text, `${name} >= ${limitText(name, least)}`);
  }
  t.strictSame([limitMinimum('grantConfirmMs'), limitMinimum('sessionsMax'), limitMinimum('reattachGraceMs')], [100, 1, 0]);
  t.strictSame([limitText('heartbeatIntervalMs', 90_000), limitText('loadTimeoutMs', 86_400_000), limitText('xMs', 1_500), limitText('frameBytesMax', 8 * 1024 ** 2), limitText('leasesMax', 4_096), limitText('reattachGraceMs', 0)].join(' '), '90s 1d 1500ms 8MiB 4096 0', 'as leasehold.yaml takes them');
  t.ok(Object.values(defaultLimits).every((limit) => Number.isSafeInteger(limit) && limit >= 0));
});

t.test('the README’s links lead somewhere, and its proofs are right', async (t) => {
  const text = readFileSync(join(root, 'protocol/README.md'), 'utf8');
  const slug = (heading: string): string => heading.toLowerCase().replace(/[^\w\s-]/g, '').trim().replace(/\s/g, '-');
  const anchors = new Set([...[...text.matchAll(/^#+ (.*)$/gm)].map((match) => slug(match[1] ?? '')), ...[...text.matchAll(/<a id="([^"]+)">/g)].map((match) => match[1] ?? '')]);
  const links = [...text.matchAll(/\]\(([^)]+)\)/g)].map((match) => match[1] ?? '').filter((link) => !link.startsWith('http'));
  t.ok(links.length > 100);
  t.strictSame(links.filter((link) => (link.startsWith('#') ? !anchors.has(link.slice(1)) : !existsSync(join(root, 'protocol', link)))), []);
  t.match(text, new RegExp(`spawn:b-w1 +→ ${spawnKey('0'.repeat(64), 'b-w1')}`));
  t.match(text, new RegExp(`role:client +→ ${roleProof('0'.repeat(64), 'client')}`));
});

t.test('everything generated is what the generator writes', async (t) => {
  t.equal(execFileSync(process.execPath, [join(root, 'protocol/generate.mjs'), '--check'], { encoding: 'utf8', stdio: 'pipe' }), '');
});
