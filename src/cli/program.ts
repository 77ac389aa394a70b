/** The command line: names, options and help of every command. What they do is loaded when one is run. */
import { Command, CommanderError, Option } from 'commander';
import { LeaseholdError, suggest } from '../../protocol/index.js';
import { createContext, type CommandContext, type CommonOptions, type Dependencies } from './context.js';
import { exitCodeOf, exitCodes } from './exit-codes.js';
import { reportError } from './report.js';
import { fitted } from './terminal/output.js';
import { version } from '../version.js';

type Act<Options> = (context: CommandContext, args: readonly unknown[], options: Options) => Promise<number>;

const footer = `
Exit status: 0 done; 1 failed; 2 wrong usage, configuration or input; 3 no
broker runs; 4 no room, or not in time; 130 ended by Ctrl-C; 143 by SIGTERM.
An \`up\` that is told to stop, and does, is done: 0.
Settings: an option beats a LEASEHOLD_* variable, which beats leasehold.yaml,
which beats the default.`;

/** Runs one command line; resolves to the exit status. Never rejects: whatever goes wrong is reported. */
export async function runProgram(args: readonly string[], dependencies: Dependencies): Promise<number> {
  let code: number = exitCodes.done;
  const program = buildProgram(dependencies, (status) => { code = status; });
  try {
    assertHelpTopic(program, args);
    await program.parseAsync(args, { from: 'user' });
    return code;
  } catch (thrown) {
    const json = args.includes('--json');
    if (thrown instanceof CommanderError && thrown.exitCode === 0) return exitCodes.done;
    // Called without a command: the help that has been written is the answer.
    if (thrown instanceof CommanderError && thrown.code === 'commander.help' && !json) return exitCodes.usage;
    const error = thrown instanceof CommanderError ? usageError(program, thrown, args) : LeaseholdError.from(thrown);
    const context = createContext(dependencies, { color: !args.includes('--no-color') });
    reportError(dependencies.io, context.errorPalette, error, json);
    return exitCodeOf(error);
  }
}

/** What commander found wrong with the command line, as one of our errors. */
function usageError(program: Command, thrown: CommanderError, args: readonly string[]): LeaseholdError {
  const said = thrown.message.replace(/^error: /, '').replace(/\.$/, '').replace(/\s+/g, ' ');
  const [command] = args.filter((arg) => namesOf(program).includes(arg));
  const help = `\`leasehold ${command === undefined ? '' : `${command} `}--help\` says what there is.`;
  return new LeaseholdError('input_invalid', { field: 'command line', reason: thrown.code === 'commander.help' ? 'a command is missing' : said }, { cause: thrown, help });
}

/** Of a command that is none, commander would show the help of all without a word. */
function assertHelpTopic(program: Command, [first, topic]: readonly string[]): void {
  if (first !== 'help' || topic === undefined || topic.startsWith('-') || namesOf(program).includes(topic)) return;
  const near = suggest(topic, namesOf(program));
  throw new LeaseholdError('input_invalid', { field: 'help', reason: `there is no command ${topic}${near === null ? '' : `; did you mean ${near}?`}` }, { help: '`leasehold --help` lists the commands.' });
}

function namesOf(program: Command): readonly string[] {
  return program.commands.map((command) => command.name());
}

function buildProgram(dependencies: Dependencies, done: (code: number) => void): Command {
  const { io } = dependencies;
  const program = new Command('leasehold')
    .description('Every byte on a GPU is held only on lease: one broker, its workers, and models that take turns.')
    .version(version(), '-V, --version')
    .helpCommand(true)
    .addHelpText('after', footer)
    .showSuggestionAfterError()
    .exitOverride()
    .configureHelp({ minWidthToWrap: 20 })
    .configureOutput({
      writeOut: (text) => { io.stdout.write(fitted(io.stdout, text, 6)); }, writeErr: (text) => { if (text.includes('Usage:')) io.stderr.write(fitted(io.stderr, text, 6)); },
      getOutHelpWidth: () => io.stdout.columns, getErrHelpWidth: () => io.stderr.columns,
    });

  const add: Add = <Options>(usage: string, description: string, load: () => Promise<Act<Options>>): Command => {
    const command = program.command(usage).description(description);
    command.action(async (...received: unknown[]) => {
      const act = await load();
      const context = createContext(dependencies, command.opts<CommonOptions>());
      done(await act(context, received.slice(0, command.registeredArguments.length), command.opts() as Options));
    });
    return command;
  };

  add('up', 'own the cards and serve until Ctrl-C', async () => (await import('./commands/up.js')).up)
    .addOption(cardOption()).addOption(reserveOption()).addOption(yieldOption()).addOption(ledgerOnlyOption()).addOption(hostMemoryOption()).addOption(hostReserveOption());
  addRunOptions(add('run', 'ask a model; the prompt is the arguments, or standard input', async () => (await import('./commands/run.js')).run))
    .argument('<model>', 'a name or alias, owner/name once it is pulled, or the path of a GGUF file')
    .argument('[prompt...]', 'the question; left out: read from standard input');
  add('ps', 'the ledger: cards, models, who waits, workers', async () => (await import('./commands/ps.js')).ps)
    .option('-w, --watch', 'draw it again and again until Ctrl-C')
    .option('--interval <duration>', 'how often with --watch (default: 1s)');
  add('evict', 'free a model\'s card bytes once its calls have ended', async () => (await import('./commands/evict.js')).evict)
    .argument('[model]', 'a name or alias, owner/name once it is pulled, or the path of a GGUF file')
    .option('--all', 'every model that holds anything; those that stay are named, with why (status 1)')
    .option('--park', 'keep a copy in host memory where the engine can')
    .option('--deadline <duration>', 'longest to wait, like 30s');
  add('pin', 'never evict a model for another', async () => (await import('./commands/pin.js')).pin)
    .argument('<model>', 'a name or alias, owner/name once it is pulled, or the path of a GGUF file')
    .option('--off', 'evict it again when room is needed');
  add('explain', 'why: each decision with the numbers that made it', async () => (await import('./commands/explain.js')).explain)
    .argument('[about]', 'a record\'s id, or a model: a name or alias, or the path of a GGUF file; left out: whatever was decided last')
    .option('-c, --count <number>', 'how many, newest first (default: back to the last decision; of an id: 1)');
  add('models', 'the models that can be asked for, and which are loaded', async () => (await import('./commands/models.js')).models)
    .option('--pulled', 'instead: what has been pulled from a hub, and whether it is whole');
  add('limits', 'every limit with its value and meaning', async () => (await import('./commands/limits.js')).limits);
  addEstimateOptions(add('estimate', 'the bytes that a model will need, and how each figure was got; no card is touched', async () => (await import('./commands/estimate.js')).estimateCommand))
    .argument('[model]', 'a name or alias, a GGUF file, a folder, or owner/name[@revision][:file-or-quant]');
  addModelCommands(add);
  add('demo', 'three small models take turns on a simulated card that holds two', async () => (await import('./demo/demo.js')).demo);
  add('stress', 'play a scenario of callers and faults, and hold it to what it expects', async () => (await import('./commands/stress.js')).stress)
    .argument('[scenario]', 'a YAML file, or the name of one that ships (--list)')
    .addOption(new Option('--on <what>', 'a virtual clock, real processes with simulated workers, or real engines (default: clock)').choices(['clock', 'processes', 'engines']))
    .option('--speed <factor>', 'on processes or engines: play it so many times as fast, all its times divided by this: at 10 five minutes take 30 s; the report tells the scenario\'s own times (default: 1)')
    .option('--seed <number>', 'instead of the file\'s')
    .option('--svg <file>', 'write who held the cards when')
    .option('--list', 'the scenarios that ship');
  add('doctor', 'is this machine fit? What is wrong, and how to mend it', async () => (await import('./commands/doctor.js')).doctor)
    .argument('[groups...]', 'only these: program, state, broker, rungs, cards, masks, limits, memory, system, configuration, engines')
    .option('--no-engines', 'start no engine')
    .addOption(cardOption());
  for (const command of program.commands) addCommonOptions(command);
  return program;
}

type Add = <Options>(usage: string, description: string, load: () => Promise<Act<Options>>) => Command;

function addModelCommands(add: Add): void {
  add('pull', 'bring a model from a hub here, checked', async () => (await import('./commands/pull.js')).pull)
    .argument('<model>', 'owner/name[@revision][:file-or-quant]')
    .addOption(new Option('--backend <name>', 'what it is to run on, where several can').choices(['transformers', 'vllm', 'llama_cpp']))
    .option('--pin <file=sha256>', 'refuse unless the hub says this of the file; may be repeated', collect)
    .option('--no-projector', 'leave out what sees images or hears sound, a GGUF file beside the model\'s')
    .option('-q, --quiet', 'no progress on standard error');
  add('verify', 'hash what has been pulled; throw away what is wrong', async () => (await import('./commands/pulled.js')).verify)
    .argument('[model]', 'a reference or the id of a profile; left out: all');
  add('rm', 'remove a model that has been pulled', async () => (await import('./commands/pulled.js')).remove)
    .argument('<model>', 'a reference or the id of a profile');
}

function addRunOptions(command: Command): Command {
  return command
    .option('-s, --system <text>', 'what the model is told first')
    .option('-n, --max-tokens <count>', 'longest answer, in tokens (default: 512)')
    .option('-t, --temperature <number>', '0 is greedy (default: 0)')
    .option('--seed <digits>', 'for sampling, 0 to 2^63 - 1')
    .option('--raw', 'give the prompt as it is, without the chat template')
    .option('--think', 'switch thinking on in the chat template')
    .option('--no-think', 'switch it off')
    .option('--show-thought', 'write what the model thinks to standard error')
    .addOption(new Option('--class <class>', 'how urgent it is').choices(['interactive', 'normal', 'background']))
    .option('--deadline <duration>', 'longest to wait for room and a turn, like 30s')
    .option('--context <tokens>', 'tokens of the context, like 4096 or 32k (32 times 1024)')
    .option('-q, --quiet', 'no progress on standard error')
    .option('-v, --verbose', 'tokens and times at the end, on standard error')
    .addOption(cardOption()).addOption(reserveOption()).addOption(yieldOption()).addOption(brokerOption()).addOption(ledgerOnlyOption()).addOption(hostMemoryOption()).addOption(hostReserveOption());
}

function addEstimateOptions(command: Command): Command {
  return command
    .option('--context <tokens>', 'tokens of each context, like 4096 or 32k (default: as configured under its name, else what the model was trained on, at most 32768)')
    .option('--parallel <count>', 'contexts at once (default: 1)')
    .addOption(new Option('--engine <name>', 'what will run it (default: as `run` would, else by its format)').choices(['llama', 'transformers', 'vllm']))
    .option('--kv-type <type>', 'of the cache: f16, q8_0, fp8, … (default: the engine\'s)')
    .option('--batch <tokens>', 'tokens of one evaluation (default: the engine\'s)')
    .option('--ranks <count>', 'cards, by tensor parallelism (default: 1)')
    .option('--dtype <type>', 'what weights are cast to at load (default: the config\'s)')
    .option('--projector <file>', 'the GGUF file that sees images (default: the one that was pulled with it, or would be)')
    .option('--no-projector', 'it will see none: as `run` loads it')
    .option('--image-side <pixels>', 'of the largest image, where the model does not say')
    .option('--draft <model>', 'a model that drafts for it')
    .option('--declared <size>', 'what to take where no size can be worked out, like 6GiB')
    .option('--on-cpu', 'llama.cpp computes on the CPU: nothing stays behind in host memory')
    .option('--errors', 'how wrong past estimates were; with a model, those of it')
    .option('--no-ask', 'do not ask llama.cpp itself, though it is installed');
}

function addCommonOptions(command: Command): void {
  command
    .optionsGroup('Common options:')
    .option('--json', 'one JSON object a line on standard output; errors too')
    .option('--config <file>', 'default: $LEASEHOLD_CONFIG, ./leasehold.yaml, ~/.config/leasehold/leasehold.yaml')
    .option('--state <folder>', 'the state folder: a broker\'s socket, secret, lock and what it has learned (default: $LEASEHOLD_STATE, else one in the user\'s runtime folder)')
    .option('--limit <name=value>', 'override a limit (`leasehold limits` lists them); may be repeated', collect)
    .addOption(new Option('--log-level <level>', 'the least that is logged').choices(['silent', 'error', 'warn', 'info', 'debug']))
    .option('--log-file <file>', 'default: standard error')
    .option('--no-color', 'no colours; so does NO_COLOR')
    .helpOption('-h, --help', 'this help');
}

const cardOption = (): Option => new Option('--device <card>', 'auto, cpu, sim:SIZE, sim:SIZE,name=NAME or a UUID; may be repeated').argParser(collect);
const reserveOption = (): Option => new Option('--reserve <size>', 'bytes kept free on every card, like 256MiB');
const yieldOption = (): Option => new Option('--yield <size>', 'give way to other programs on every card until so much is free: off, auto or like 2GiB (default: off)');
const hostMemoryOption = (): Option => new Option('--host-memory <what>', 'lease the machine\'s memory too: auto, system, off or sim:SIZE (default: auto)');
const hostReserveOption = (): Option => new Option('--host-reserve <size>', 'bytes of it kept free for everything else (default: a tenth)');
const brokerOption = (): Option => new Option('--broker <how>', 'auto, own or attach (default: auto)');
const ledgerOnlyOption = (): Option => new Option('--allow-ledger-only', 'go on, marked unverified, when no probe answers');

function collect(value: string, previous: readonly string[] | undefined): readonly string[] {
  return [...(previous ?? []), value];
}
