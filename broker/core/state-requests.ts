/** Requests that wait, alone or in gangs, as records of the broker's state: see state.ts. */
import type { ErrorCode, HostNeed, LeasePart, ModelPolicy, RequestClass } from '../../protocol/index.js';

interface Asked {
  readonly key: string;
  readonly generation: string;
  readonly request: number;
  readonly model: string;
  readonly order: number;
  class: RequestClass;
  readonly arrivedUs: number;
  readonly arrivedAtUs: number;
  deadlineUs: number;
  deadlineMs: number;
  readonly policy: ModelPolicy;
  /** The card it waits for. */
  readonly device: string;
  /** The gang it is of, by its key; null: it is alone. */
  readonly gang: string | null;
  /** How it stands at the last look, for its gang: it could be granted, it is first and short, or something else keeps it. */
  standing: 'ready' | 'short' | 'kept';
  /** What was left to it then by those before it. */
  roomBytes: number;
  needBytes: number;
  holdBytes: number;
  /** The same in the machine's memory. */
  hostNeedBytes: number;
  hostHoldBytes: number;
  /** The plan epoch of the host at which no sufficient victim set was found there. */
  hostTriedEpoch: number;
  /** None was found when it was last looked for: it stands in nobody's way there until one is. */
  hostHopeless: boolean;
  /** Victims were chosen for it: from then on what comes free up to its need is its hold. */
  planned: boolean;
  /** Workers that are to end for it when all that they host has left. */
  ends: readonly string[];
  /** Requests that passed it. */
  skips: number;
  /** The plan epoch at which no victims were taken for it, and why: there was no sufficient set, or it was too soon for it. */
  triedEpoch: number;
  triedReason: 'no_victims' | 'sparing';
  /** The reason last told to the requester. */
  told: string | null;
  /** Ids of the load without progress and of the slow leavers that were named with it. */
  toldNamed: string;
  /** When it was last told. */
  toldUs: number;
  /** The part of the sentence without figures: the rest of it is of the moment. */
  clause: string;
  reason: string;
}

export interface BudgetWaiter extends Asked {
  readonly kind: 'budget';
  readonly lease: string | null;
  readonly parts: readonly LeasePart[];
  readonly requestedBytes: number;
  readonly peakBytes: number;
  readonly parkable: boolean;
  readonly profiles: boolean;
  exclusive: boolean;
  readonly host: HostNeed | null;
  /** Whether its gang has room for all of its copies there: none of them is of use alone. Null: it decides for itself. */
  hostCopies: boolean | null;
}

/** The cards of the workers that would do: so many of them, and none but those allowed (null: any). */
export interface WantedCards {
  readonly count: number;
  readonly allowed: readonly string[] | null;
}

export interface PlaceWaiter extends Asked {
  readonly kind: 'place';
  readonly engine: string;
  readonly requestedBytes: number;
  /** The cards of the worker that it wants, in the order of their UUIDs; `device` is one of them. */
  readonly devices: readonly string[];
  /** The workers that would do: those that it asked for, whatever was chosen. */
  readonly wanted: WantedCards;
  /** One request for several cards waits on each; one of those is answered for all. */
  readonly speaks: boolean;
  /** The process it waits for; null while it waits for the floor. */
  joined: string | null;
}

export type Waiter = BudgetWaiter | PlaceWaiter;

/** Why a gang is refused, told to each of its members. */
export interface GangRefusal {
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, string>>;
  readonly text: string;
}

/** Requests, one a card, that are granted together or not at all. It is there until they are answered. */
export interface Gang {
  readonly key: string;
  readonly generation: string;
  /** What its requester calls it; null: it is a placement's. */
  readonly name: string | null;
  readonly model: string;
  readonly size: number;
  /** Its requests by card; it is complete when there are `size` of them, and waits for nothing before. */
  readonly members: Map<string, string>;
  /** It has all of its cards: its requests are decided on like any others, but together. */
  forming: boolean;
  /** The first card, in the order of UUIDs, where no sufficient victims were found: its others wait for that and keep nobody up. */
  stalledOn: string | null;
  /** Why one of its members was refused: the others are, for the same reason. */
  refusal: GangRefusal | null;
}

/** A client's wish that a model leaves the cards. */
export interface EvictRequest {
  readonly key: string;
  readonly generation: string;
  readonly request: number;
  readonly model: string;
  readonly target: 'host' | 'none';
  readonly arrivedAtUs: number;
  readonly deadlineMs: number;
  readonly pending: Set<string>;
  freedBytes: number;
}
