/** Commands in flight: numbered, and kept until they are answered or their lease or process is gone. */
import type { Command, Core, Lease } from '../state.js';

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

/** What was asked about a lease is over with its stay on the card: an answer that comes later says nothing of the next. */
export function forgetCommands(core: Core, lease: Lease): void {
  for (const id of lease.commands) core.commands.delete(id);
  lease.commands.length = 0;
}

function forget(commands: number[] | undefined, id: number): void {
  const place = commands?.indexOf(id) ?? -1;
  if (place >= 0) commands?.splice(place, 1);
}
