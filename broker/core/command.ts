/** Commands in flight: numbered, and kept until they are answered or their lease or process is gone. */
import type { Command, Core } from './state.js';

/** Registers a command and gives its number. */
export function openCommand(core: Core, command: Omit<Command, 'id'>): number {
  const id = core.nextCommand++;
  core.commands.set(id, { id, ...command });
  if (command.lease === null) core.processes.get(command.generation)?.commands.add(id);
  else core.leases.get(command.lease)?.commands.push(id);
  return id;
}

/** A command has been answered, or need not be. */
export function closeCommand(core: Core, id: number): void {
  const command = core.commands.get(id);
  if (command === undefined) return;
  core.commands.delete(id);
  if (command.lease === null) core.processes.get(command.generation)?.commands.delete(id);
  else forget(core.leases.get(command.lease)?.commands, id);
}

function forget(commands: number[] | undefined, id: number): void {
  const place = commands?.indexOf(id) ?? -1;
  if (place >= 0) commands?.splice(place, 1);
}
