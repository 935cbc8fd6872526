// The trend of a line: each point is the mean of those around it.

/** From so many points on, a line is smoothed. */
const ENOUGH = 20;
const SHARE = 0.05;

/**
 * @param {[number, number][]} points
 * @returns {[number, number][]}
 */
export function smooth(points) {
  if (points.length < ENOUGH) return points;
  const reach = Math.max(1, Math.round((points.length * SHARE) / 2));
  return points.map(([step], at) => {
    const around = points.slice(Math.max(0, at - reach), at + reach + 1);
    return [step, around.reduce((sum, [, value]) => sum + value, 0) / around.length];
  });
}
