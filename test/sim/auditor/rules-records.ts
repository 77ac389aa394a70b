/** The numbers of an explain record are those of the book and of the last reading. */
import type { ExplainRecord } from '../../../broker/core/explain.js';
import type { Check } from './check.js';
import { requestKey, type AuditedRequest } from './records.js';

export function checkRecords(check: Check): void {
  for (const record of check.records.values()) {
    if (record.atUs !== check.event.atUs) check.broken('record-time', `record ${record.id} is of ${record.atUs}, the step of ${check.event.atUs}`);
    if (record.numbers !== null) checkNumbers(check, record);
  }
}

function checkNumbers(check: Check, record: ExplainRecord): void {
  const { book } = check;
  const { numbers } = record;
  const card = record.device === null ? undefined : book.cards.get(record.device);
  if (numbers === null || card === undefined) return;
  const wrong = (what: string): void => check.broken('record-numbers', `record ${record.id} (${record.verdict} ${record.model ?? ''}): ${what}`);
  if (numbers.totalBytes !== card.totalBytes || numbers.reserveBytes !== card.reserveBytes) wrong(`total ${numbers.totalBytes}, reserve ${numbers.reserveBytes}`);
  if (card.sample !== null && numbers.sampledUsedBytes !== null && numbers.sampledUsedBytes !== card.sample.usedBytes) {
    wrong(`sampled used ${numbers.sampledUsedBytes}, the last reading was ${card.sample.usedBytes}`);
  }
  const roomBytes = Math.max(0, numbers.totalBytes - numbers.reserveBytes - numbers.chargedBytes);
  if (numbers.availableBytes > roomBytes) wrong(`available ${numbers.availableBytes} of a room of ${roomBytes}`);
  const request = record.request === null ? null : (book.requests.get(requestKey(record.generation, record.request)) ?? null);
  if (request !== null && card.device !== book.memory?.device) checkNeed(request, numbers, wrong);
}

function checkNeed(request: AuditedRequest, numbers: NonNullable<ExplainRecord['numbers']>, wrong: (what: string) => void): void {
  if (request.kind !== 'budget' || request.lease !== null) return;
  if (numbers.requestedBytes !== request.askedBytes) wrong(`requested ${numbers.requestedBytes}, asked ${request.askedBytes}`);
  if (numbers.needBytes !== request.chargeBytes + numbers.floorBytes) {
    wrong(`need ${numbers.needBytes}, 11/10 of what was asked is ${request.chargeBytes} and the floor ${numbers.floorBytes}`);
  }
}
