/**
 * Announcements that ride on a peer's answers (D25). Their numbers grow by one;
 * a gap means that one was lost on the way to us, and everything is asked for
 * again, so that no model stays resident and unknown.
 */
import { LeaseholdError, type ControlMessage } from '../../protocol/index.js';
import type { Log } from './log.js';
import type { UntimedEvent } from './loop.js';
import type { Session } from './session.js';

/** An answer to `list_models` is made at once. */
const answerMs = 5_000;

/** Looks at an answer; asks for the whole when an announcement before it is missing. */
export function followAnnouncement(session: Session, answer: ControlMessage, feed: (event: UntimedEvent) => void, log: Log): void {
  if (answer.type === 'models') session.announcedSeq = answer.seq;
  if (!('newModels' in answer)) return;
  const missing = answer.newModels.seq !== session.announcedSeq + 1;
  session.announcedSeq = answer.newModels.seq;
  if (missing) askForAll(session, feed, log);
}

function askForAll(session: Session, feed: (event: UntimedEvent) => void, log: Log): void {
  const { generation, channel } = session;
  log.warn({ generation }, 'an announcement was lost; asking for every model');
  channel.request({ type: 'list_models' }, { timeoutMs: answerMs }).then((answer) => {
    if (answer.type !== 'models') return;
    session.announcedSeq = answer.seq;
    feed({ type: 'models_announced', generation, seq: answer.seq, models: answer.models });
  }, (error: unknown) => {
    // It tells again with its next answer, which shows the same gap.
    log.warn({ generation, reason: LeaseholdError.from(error).message }, 'the models could not be listed');
    session.announcedSeq -= 1;
  });
}
