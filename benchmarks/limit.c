/* VPAC as published, tabular, on a finite process: as fast as we can write it in C, for benchmarks/tabular.py.

   Compiled once for each case: ACTIONS is the number of actions, OFF_POLICY chooses Appendix D with a uniform behaviour
   policy and clipped ratios instead of Algorithm 1. Everything that the library decides when it runs is known to this
   compiler: the algorithm, the number of actions, that features are states, that arrays do not overlap.

   - The softmax of a state is kept until its preferences change, so exp is not on the way from a state to the next one.
   - exp is a polynomial that gcc vectorises over the actions; its relative error is about 2e-16.
   - An action is drawn without branches; a successor with a loop that mostly ends at once, because the likeliest is first.

   Random numbers: xoshiro256++, the same as the library's. */

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct { uint64_t s[4]; } Words;

static inline uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline double uniform(Words *g) {
    uint64_t *s = g->s, result = rotate(s[0] + s[3], 23) + s[0], shifted = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= shifted; s[3] = rotate(s[3], 45);
    return (int64_t)(result >> 11) * 0x1p-53;
}

static inline double normal(Words *g) {
    double radius = sqrt(-2.0 * log(1.0 - uniform(g)));
    return radius * cos(6.283185307179586 * uniform(g));
}

/* exp(x) = 2^k exp(r) for x from -700 to 0; adding 1.5 * 2^52 leaves k in the lowest bits. */
static inline double exponential(double x) {
    static const double c[] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                               1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
    union { double number; int64_t bits; } shifted, result;
    x = x < -700.0 ? -700.0 : x;
    double k = rint(x * 1.4426950408889634), r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10, p = c[13];
    for (int i = 12; i >= 0; i--) p = p * r + c[i];
    shifted.number = k + 0x1.8p52;
    result.number = p;
    result.bits += shifted.bits << 52;
    return result.number;
}

static inline void softmax(const double *restrict theta, double *restrict policy) {
    double top = theta[0], total = 0.0;
    for (int a = 1; a < ACTIONS; a++) top = theta[a] > top ? theta[a] : top;
    for (int a = 0; a < ACTIONS; a++) policy[a] = exponential(theta[a] - top);
    for (int a = 0; a < ACTIONS; a++) total += policy[a];
    double share = 1.0 / total;
    for (int a = 0; a < ACTIONS; a++) policy[a] *= share;
}

static inline int act(const double *policy, Words *g) {
    double drawn = uniform(g);
#ifdef OFF_POLICY
    return (int)(drawn * ACTIONS);
#else
    double up_to = 0.0;
    int action = 0;
    for (int a = 0; a < ACTIONS - 1; a++) { up_to += policy[a]; action += drawn >= up_to; }
    return action;
#endif
}

static inline double ratio(const double *policy, int action) {
#ifdef OFF_POLICY
    double rho = policy[action] * ACTIONS;
    return rho < 1.0 ? rho : 1.0;
#else
    return 1.0;
#endif
}

/* Learns for so many episodes; `policies` is room for a table like theta. Returns how many steps that took. */
int64_t vpac(int64_t states, const int64_t *restrict indptr, const int64_t *restrict successor,
             const double *restrict probability, const double *restrict reward, const double *restrict deviation,
             const uint8_t *restrict terminal, int64_t n_starts, const int64_t *restrict starts, double *restrict theta,
             double *restrict w, double *restrict z, double *restrict policies, const uint64_t *seed, int64_t episodes,
             int64_t limit, double gamma, double psi, double alpha_theta, double alpha_w, double alpha_z,
             double *restrict returns) {
    Words g;
    int64_t steps = 0;
    memcpy(g.s, seed, sizeof g.s);
    for (int64_t s = 0; s < states; s++) softmax(theta + s * ACTIONS, policies + s * ACTIONS);
    for (int64_t episode = 0; episode < episodes; episode++) {
        int64_t here = starts[(int64_t)(uniform(&g) * n_starts)] * ACTIONS;
        int action = act(policies + here, &g);
        double rho = ratio(policies + here, action), i_q = rho, i_sigma = rho, price = psi, total = 0.0, discount = 1.0;
        for (int64_t k = 0; k < limit; k++) {
            int64_t entry = indptr[here + action], last = indptr[here + action + 1] - 1;
            double left = uniform(&g) - probability[entry];
            while (left >= 0.0 && entry < last) left -= probability[++entry];
            double paid = reward[entry], q_next = 0.0, s_next = 0.0, rho_next = 1.0;
            if (deviation[entry] > 0.0) paid += deviation[entry] * normal(&g);
            int64_t there = successor[entry] * ACTIONS;
            int next = 0, end = terminal[successor[entry]];
            if (!end) {
                next = act(policies + there, &g);
                rho_next = ratio(policies + there, next);
                q_next = w[there + next];
                s_next = z[there + next];
            }
            double q = w[here + action], s = z[here + action], discount = gamma * rho_next;
            double delta = paid + discount * q_next - q;
            w[here + action] = q += alpha_w * delta;
            z[here + action] = s += alpha_z * (delta * delta + discount * discount * s_next - s);
            double weight = alpha_theta * (i_q * q - price * i_sigma * s), *row = theta + here, *policy = policies + here;
            for (int a = 0; a < ACTIONS; a++) row[a] += weight * ((a == action) - policy[a]);
            softmax(row, policy);
            total += discount * paid;
            discount *= gamma;
            i_q *= discount;
            i_sigma *= discount * discount;
#ifdef OFF_POLICY
            price = 2.0 * psi;
#endif
            steps++;
            here = there;
            action = next;
            if (end) break;
        }
        returns[episode] = total;
    }
    return steps;
}
