/** What the library is given is checked as strictly as the file: by name, by kind, by value, each refusal naming the field and what is allowed. */
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { LeaseholdError } from '../../protocol/index.js';
import { createOrchestrator, type GenerateInput, type ModelOptions } from '../../src/index.js';
import { tinyModels } from '../../workers/models/index.js';
import { MiB, folder, open, refusal, scripted, thrown } from '../integration/support.js';

const onEvict = (): 'busy' => 'busy';

t.test('options that are none are refused before anything is started', async (t) => {
  const stateFolder = folder(t);
  const refused = async (options: unknown): Promise<LeaseholdError> => refusal(createOrchestrator(options as object));
  const ofOptions: readonly (readonly [unknown, string, RegExp])[] = [
    [{ device: ['sim:8MiB'] }, 'device', /no such option; did you mean devices\?/],
    [{ state: stateFolder }, 'state', /did you mean stateFolder\?/],
    [{ workers: [] }, 'workers', /did you mean engines\?/],
    [{ zebra: 1 }, 'zebra', /known here: models, devices, /],
    [{ devices: 'sim:8MiB' }, 'devices', /must be a list like .*sim:24MiB.*, not "sim:8MiB"/],
    [{ devices: [7] }, 'devices[0]', /a string with something in it, not 7/],
    [{ broker: 'mine' }, 'broker', /auto, own or attach, not "mine"/],
    [{ reserveBytes: '1GiB' }, 'reserveBytes', /a number of bytes/],
    [{ models: ['a'] }, 'models', /an object of models by name, not a list/],
    [{ limits: 5 }, 'limits', /an object of limits, not 5/],
    [{ classPolicies: { norml: {} } }, 'classPolicies.norml', /did you mean normal\?/],
    [{ classPolicies: { normal: { rank: 'high' } } }, 'classPolicies.normal.rank', /a number, not "high"/],
    [{ log: console.log }, 'log', /debug, info, warn and error, not a function/],
    [{ engines: [{ name: 'mine', comand: 'x' }] }, 'engines[0].comand', /did you mean command\?/],
    [null, 'options', /an object, not null/],
    ['sim:8MiB', 'options', /an object, not "sim:8MiB"/],
  ];
  for (const [options, where, message] of ofOptions) t.match(await refused(options), { code: 'config_invalid', details: { where }, message }, where);
  const ofModels: readonly (readonly [unknown, string, RegExp])[] = [
    ['/a.gguf', 'm', /an object like \{ source: .* not "\/a\.gguf"/],
    [{}, 'm.source', /it is missing/],
    [{ path: '/a.gguf' }, 'm.path', /did you mean source\?/],
    [{ source: 'x', context: 4_096 }, 'm.context', /did you mean contextTokens\?/],
    [{ source: 'x', context_tokens: 4_096 }, 'm.context_tokens', /did you mean contextTokens\?/],
    [{ source: 'x', contextTokens: '4096' }, 'm.contextTokens', /an integer from 1 to 16777216 \(tokens\), not "4096"/],
    [{ source: 'x', ttlMs: 'never' }, 'm.ttlMs', /or null, not "never"/],
    [{ source: 'x', aliases: 'a' }, 'm.aliases', /a list of names/],
    [{ source: 'x', class: 'urgent' }, 'm.class', /one of interactive, normal, background/],
    [{ source: 'x', options: { threads: 4 } }, 'm.options.threads', /a string, not 4/],
  ];
  for (const [model, where, message] of ofModels) t.match(await refused({ models: { m: model } }), { code: 'config_invalid', details: { path: 'models', where }, message }, where);
});

t.test('a card that is none, and a reserve that leaves nothing of one, are told with what is allowed', async (t) => {
  const refused = async (options: object): Promise<LeaseholdError> => refusal(createOrchestrator({ broker: 'own', stateFolder: folder(t), ...options }));
  for (const word of ['sim:26MB2', 'sim:', 'sim:big', 'sim:1.5GiB', 'sim:-1']) t.match(await refused({ devices: [word] }), { code: 'config_invalid', message: /is no size; .*sim:SIZE\[,floor=SIZE\].*MiB/ }, word);
  for (const [word, meant] of [['sim:26', 'sim:26MiB'], ['sim:0', 'sim:26MiB'], ['sim:4096,lag=2s', 'sim:4096MiB']] as const) {
    t.match(await refused({ devices: [word] }), { code: 'config_invalid', details: { option: 'devices' }, message: new RegExp(`the unit is missing, as in ${meant}`) }, word);
  }
  for (const reserveBytes of [8 * MiB, 9 * MiB]) {
    t.match(await refused({ devices: ['sim:8MiB'], reserveBytes }), { code: 'config_invalid', details: { path: 'reserveBytes', where: /^SIM-/, option: 'reserveBytes' }, message: new RegExp(`${String(reserveBytes / MiB)}.0 MiB would be kept free of 8.0 MiB: nothing could be granted there`), help: /Give less/ });
  }
});

t.test('a model whose file is not there is told, the others are served, and it is found when the file comes', async (t) => {
  const place = folder(t);
  const late = join(place, 'late.gguf');
  const unusable: (readonly [string, string])[] = [];
  const orchestrator = await createOrchestrator({
    broker: 'own', stateFolder: join(place, 'state'), devices: ['sim:26MiB'],
    models: { late: { source: late, aliases: ['soon'] }, pulled: { source: 'hf.co/owner/nothing:Q4' }, here: { source: 'tiny-facts' } },
    onUnusable: (model, { code }) => { unusable.push([model, code]); },
  });
  t.teardown(() => orchestrator.close());
  t.strictSame(unusable, [['late', 'model_invalid'], ['pulled', 'profile_unknown']]);
  t.strictSame(orchestrator.models.map(({ name }) => name).filter((name) => !name.startsWith('tiny-')), ['here']);
  t.ok(await orchestrator.countTokens('here', 'What colour is the sky?') > 0);
  t.match(await refusal(orchestrator.load('soon')), { code: 'model_invalid', details: { model: 'late', option: 'models.late.source' } });
  t.match(await refusal(orchestrator.load('pulled')), { code: 'profile_unknown' });
  t.match(await refusal(orchestrator.load('nowhere')), { code: 'model_unknown' });
  symlinkSync(tinyModels['tiny-facts'].ggufPath, late);
  t.ok(await orchestrator.countTokens('soon', 'What colour is the sky?') > 0, 'a disk that is mounted late');
  t.ok(orchestrator.models.some(({ name }) => name === 'late'));
});

t.test('what is wrong with a model says whose option it is, and helps in the words of the library', async (t) => {
  const refused = async (models: object): Promise<LeaseholdError> => refusal(createOrchestrator({ broker: 'own', stateFolder: folder(t), devices: ['sim:8MiB'], models: models as Record<string, ModelOptions> }));
  t.match(await refused({ m: { source: 'x', context: 5 } }), { details: { option: 'models.m.context' }, help: 'The type OrchestratorOptions of the package lists every option with its meaning.' });
  t.match(await refused({ m: { source: 'tiny-facs' } }), { code: 'model_invalid', details: { model: 'm', option: 'models.m.source' }, message: /^tiny-facs cannot be used: there is no such file, nor a model that ships under that name \(tiny-tales, tiny-sums, tiny-facts\); did you mean tiny-facts\?$/ });
  t.match(await refused({ m: { source: './tiny-facs' } }), { message: './tiny-facs cannot be used: there is no such file.' });
  t.match(await refused({ m: { source: 'tiny-facts', engine: 'vllm' } }), { code: 'engine_unknown', details: { model: 'm', option: 'models.m.engine' }, message: 'There is no engine vllm; known: llama, simulated.' });
  t.match(await refused({ m: { source: 'tiny-facts', aliases: ['q'] }, n: { source: 'tiny-sums', aliases: ['q'] } }), { message: /the name q already means m/, details: { option: 'models.n.aliases' } });
  t.match(await refusal(createOrchestrator({ limits: { workersMx: 1 } as object })), { details: { option: 'limits.workersMx' }, help: /leasehold limits/ });
});

t.test('what calls are given', async (t) => {
  const orchestrator = await open(t, { models: { m: scripted({ text: 'fine' }) } });

  t.test('an input is a string, a prompt or messages, and nothing else', async (t) => {
    const message = { role: 'user', content: 'x' };
    const inputs: readonly (readonly [unknown, string])[] = [
      [null, 'input'], [undefined, 'input'], [7, 'input'], [['x'], 'input'], [{}, 'input'], [{ prompt: 'x', messages: [message] }, 'input'], [{ prompt: 7 }, 'input.prompt'],
      [{ messages: 'x' }, 'input.messages'], [{ message: [] }, 'input.message'], [{ messages: [{ role: 'robot', content: 'x' }] }, 'input.messages[0].role'],
      [{ messages: [message, { role: 'user' }] }, 'input.messages[1].content'], [{ messages: [{ role: 'user', content: ['x'] }] }, 'input.messages[0].content'],
    ];
    for (const [input, field] of inputs) {
      t.match(thrown(() => orchestrator.generate('m', input as GenerateInput)), { code: 'input_invalid', details: { field } }, field);
      t.match(await refusal(orchestrator.countTokens('m', input as GenerateInput)), { code: 'input_invalid', details: { field } });
    }
  });

  t.test('options of a call are known and of their kind', async (t) => {
    const given: readonly (readonly [object, string, RegExp])[] = [
      [{ max_tokens: 5 }, 'max_tokens', /did you mean maxTokens\?/], [{ temp: 1 }, 'temp', /did you mean temperature\?/], [{ timeoutMs: 5 }, 'timeoutMs', /did you mean deadlineMs\?/],
      [{ maxTokens: '5' }, 'maxTokens', /an integer from 0/], [{ maxTokens: 1.5 }, 'maxTokens', /an integer from 0/], [{ temperature: Number.NaN }, 'temperature', /a number from 0 to 100/],
      [{ topP: 2 }, 'topP', /a number from 0 to 1/], [{ stop: 'x' }, 'stop', /a list/], [{ seed: {} }, 'seed', /a bigint/], [{ thinking: 'on' }, 'thinking', /true or false/],
    ];
    for (const [options, field, message] of given) t.match(thrown(() => orchestrator.generate('m', 'x', options)), { code: 'input_invalid', details: { field }, message }, field);
    const ofAll: readonly (readonly [object, string, RegExp])[] = [
      [{ deadlineMs: 0 }, 'deadlineMs', /from 1 to/], [{ deadlineMs: -5 }, 'deadlineMs', /from 1 to/], [{ signal: {} }, 'signal', /an AbortSignal, not an object/], [{ signal: { aborted: false } }, 'signal', /an AbortSignal, not an object/],
      [{ class: 'urgent' }, 'class', /one of/], [{ onStage: 'tell' }, 'onStage', /a function/], [{ deadline: 5 }, 'deadline', /did you mean deadlineMs\?/],
    ];
    for (const [options, field, message] of ofAll) {
      const wanted = { code: 'input_invalid', details: { field }, message };
      t.match(thrown(() => orchestrator.generate('m', 'x', options)), wanted, field);
      for (const ask of [() => orchestrator.load('m', options), () => orchestrator.embed('m', ['x'], options), () => orchestrator.countTokens('m', 'x', options)]) t.match(await refusal(ask()), wanted);
    }
    t.match(await refusal(orchestrator.load('m', null as unknown as object)), { code: 'input_invalid', details: { field: 'options' } });
    t.match(await refusal(orchestrator.embed('m', 'x' as unknown as string[])), { code: 'input_invalid', details: { field: 'inputs' } });
    t.match(thrown(() => orchestrator.generate(7 as unknown as string, 'x')), { code: 'input_invalid', details: { field: 'model' } });
    t.match(await refusal(orchestrator.evict('m', { target: 'device' as 'host' })), { code: 'input_invalid', details: { field: 'target' } });
    t.match(await refusal(orchestrator.pin('m', 'yes' as unknown as boolean)), { code: 'input_invalid', details: { field: 'pinned' } });
    t.match(await refusal(orchestrator.explain('m', 0)), { code: 'input_invalid', details: { field: 'count' } });
  });

  t.test('a lease needs a name, bytes and somebody to give them back', async (t) => {
    const fine = { model: 'held', bytes: MiB, onEvict };
    const requests: readonly (readonly [unknown, string])[] = [
      [null, 'request'], [{ bytes: MiB, onEvict }, 'model'], [{ model: 'held', bytes: MiB }, 'onEvict'], [{ ...fine, onEvict: 'busy' }, 'onEvict'], [{ model: 'held', onEvict }, 'bytes'],
      [{ ...fine, deadlineMs: 0 }, 'deadlineMs'], [{ ...fine, size: 5 }, 'size'], [{ ...fine, policy: { pinned: true } }, 'policy.ttlMs'], [{ model: 'held', onEvict, parts: [{ name: 'w' }] }, 'parts[0].kind'],
    ];
    for (const [request, field] of requests) t.match(await refusal(orchestrator.lease(request as typeof fine)), { code: 'input_invalid', details: { field } }, field);
    t.match(await refusal(orchestrator.lease({ ...fine, bytes: 'much' as unknown as number })), { code: 'bytes_invalid', details: { field: 'bytes' } });
  });

  t.test('and what is left undefined is left out', async (t) => {
    const { text } = await orchestrator.generate('m', 'x', { maxTokens: undefined, signal: undefined } as object).result();
    t.equal(text, 'fine');
  });
});
