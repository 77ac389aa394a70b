/** Which loads of a card brought back what had made room there, by the log; and whether the core has named that thrash. */

/** A span of attended time. Not `sure`: whether its model had left as a whole the log does not tell. */
interface Load {
  readonly model: string;
  readonly fromUs: number;
  readonly toUs: number;
  readonly sure: boolean;
}

interface CardTurns {
  readonly left: Map<string, { readonly atUs: number; readonly sure: boolean }>;
  loads: Load[];
  isNamed: boolean;
}

export class TurnBook {
  /** When each lease was granted, in attended time, and what its last load took. */
  readonly grantedUs = new Map<string, number>();
  readonly tookUs = new Map<string, number>();
  private readonly cards = new Map<string, CardTurns>();

  restart(): void {
    for (const kept of [this.grantedUs, this.tookUs, this.cards]) kept.clear();
  }

  of(device: string): CardTurns {
    const known = this.cards.get(device) ?? { left: new Map(), loads: [], isNamed: false };
    this.cards.set(device, known);
    return known;
  }

  putAway(device: string, model: string, atUs: number, sure: boolean): void {
    this.of(device).left.set(model, { atUs, sure });
  }

  loaded(device: string, lease: string, model: string, nowUs: number, windowUs: number): void {
    const fromUs = this.grantedUs.get(lease) ?? nowUs;
    this.tookUs.set(lease, nowUs - fromUs);
    const card = this.of(device);
    const left = card.left.get(model);
    if (left === undefined || fromUs < left.atUs) return;
    card.left.delete(model);
    if (nowUs - left.atUs <= windowUs) card.loads.push({ model, fromUs, toUs: nowUs, sure: left.sure });
  }

  /** The share of the window that such loads take, all together counted once; those that are sure, or all. */
  share(device: string, nowUs: number, windowUs: number, sureOnly: boolean): number {
    const sinceUs = nowUs - windowUs;
    const card = this.of(device);
    card.loads = card.loads.filter((load) => load.toUs > sinceUs);
    let busyUs = 0;
    let reachedUs = sinceUs;
    for (const { fromUs, toUs, sure } of [...card.loads].sort((a, b) => a.fromUs - b.fromUs)) {
      if (sureOnly && !sure) continue;
      busyUs += Math.max(0, toUs - Math.max(reachedUs, fromUs));
      reachedUs = Math.max(reachedUs, toUs);
    }
    return busyUs / windowUs;
  }

  sureModels(device: string): string[] {
    return [...new Set(this.of(device).loads.flatMap(({ model, sure }) => (sure ? [model] : [])))];
  }
}
