// What a month will have cost: so far, and the average of the last days for each day left.

import { daysBetween } from './days.js';

const DAY = 86_400_000;
const RECENT_DAYS = 7;

/**
 * @param {string} day Today, in UTC.
 * @param {{day: string, cost_usd: number}[]} spent
 */
export function forecast(day, spent) {
  const month = `${day.slice(0, 7)}-01`;
  const next = new Date(month);
  next.setUTCMonth(next.getUTCMonth() + 1);
  const end = new Date(next.getTime() - DAY).toISOString().slice(0, 10);
  const costs = new Map(spent.map((each) => [each.day, each.cost_usd]));
  const sum = (/** @type {string[]} */ days) => days.reduce((all, each) => all + (costs.get(each) ?? 0), 0);
  const sofar = sum(daysBetween(month, day));
  const before = daysBetween(startOf(day), day).slice(0, -1);
  const first = before.findIndex((each) => costs.has(each));
  const recent = first < 0 ? [] : before.slice(first);
  const daily = recent.length ? sum(recent) / recent.length : sofar;
  const left = daysBetween(day, end).length - 1;
  return { sofar, daily, left, total: sofar + daily * left, days: recent.length };
}

/** @param {string} day */
export function startOf(day) {
  return new Date(Date.parse(day) - RECENT_DAYS * DAY).toISOString().slice(0, 10);
}
