/* SPDX-License-Identifier: MIT
 *
 * The solver's private parts. Samples are divided among the workers, one per thread. Each worker
 * has a few slots; a slot holds one sample until that sample is done, and then takes the next. All
 * slots of a worker share one application of Phi per round.
 *
 * Legend (paper section 3.4, with the curvature split c of the free energy)
 *   q   marginals of one sample; observed variables are one-hot and stay so
 *   u   log q, kept by the other methods: q may underflow, u does not
 *   g   Phi q + b, the logits
 *   x   what q is the prox of:        beta q + alpha u = x + lambda
 *   T   the forward step              beta q + alpha g,  beta = 1 - c alpha; alpha by tier
 *   r   T - x: zero at the fixed point. Centred, -r/alpha is the gradient of the free
 *       energy, so that ||r/alpha|| / mu bounds the distance to the solution.
 */
#ifndef MB_SOLVER_SOLVER_H
#define MB_SOLVER_SOLVER_H

#include <stdatomic.h>
#include <time.h>

#include "base/pool.h"
#include "kernels/kernels.h"
#include "monobolt/refine.h"
#include "operator/exact.h"
#include "operator/link.h"
#include "operator/phi.h"
#include "operator/relay.h"
#include "operator/spectrum.h"

#define MB_WINDOW_MAX 10 /* of Anderson's acceleration */

/* Consecutive variables of one tier and one cardinality: the row kernels work run by run. */
typedef struct mb_run {
    size_t first, count; /* variables */
    uint32_t k;
    size_t tier;
} mb_run;

/* ----------------------------------------------------------- precondition.c -- */

#define MB_PRECONDITION_RANK 4 /* columns that are not there are zero */

/* A variable of a tier with gain, and where its U is. */
typedef struct mb_inhibited {
    uint32_t variable, at, k; /* at: where it starts in a sample */
    uint32_t factor;
} mb_inhibited;

typedef struct mb_precondition {
    bool used; /* some variable inhibits itself enough */
    mb_inhibited *variables;
    size_t count;
    uint8_t *rank; /* of each factor: columns of U                           */
    float *u;      /* of each factor, `line` apart: [k][MB_PRECONDITION_RANK] */
    size_t line;
    double *left;  /* [largest k]: workspace */
} mb_precondition;

mb_status mb_precondition_create(mb_precondition *p, const mb_model *model);
void mb_precondition_destroy(mb_precondition *p);
void mb_precondition_refresh(mb_precondition *p, const mb_model *model);
/* Floats that a sample needs. */
size_t mb_precondition_room(const mb_precondition *p);
/* For the marginals q of a sample: its part of `room`, and which of the variables take part. */
void mb_precondition_begin(const mb_precondition *p, float *room, uint32_t *list, size_t *count,
                           const int32_t *observed, const float *q);
/* z, which holds a residual, becomes B^-1 z; s_rest: S times it. */
void mb_precondition_apply(const mb_precondition *p, const float *room, const uint32_t *list,
                           size_t count, float *z, const float *s_rest);

/* ------------------------------------------------------------------- slots -- */

/* A slot works on one sample by one algorithm at a time, so the algorithms share its memory. Each
 * of the structs below names the same few tensors, MB_SLOT_TENSORS of [size] floats (create.c), by
 * what they hold in its algorithm, beside the numbers that the algorithm keeps of a sample. */
#define MB_SLOT_TENSORS 9

/* mb_solver_solve by any method; see the legend above. */
typedef struct mb_iterate {
    float *q, *u, *g, *x;
    mb_result result;
    double floor; /* rounding keeps the certificate above this                       */
    double best;  /* the smallest certificate so far, and the iteration that had it: */
    uint32_t best_iteration;
} mb_iterate;

/* Forward-backward and its acceleration: what it keeps beside the iterate. */
typedef struct mb_forward_backward {
    float *r, *last_r;      /* T - x now, and in the last iteration                         */
    float *forward;         /* T of the last iteration                                      */
    float *plain_q;         /* where one more step without acceleration leads               */
    float *scratch;         /* within one function                                          */
    float *lambda;          /* [variables]                                                  */
    float *dt[MB_WINDOW_MAX], *dr[MB_WINDOW_MAX]; /* the history: differences of T and of r */
    size_t columns, newest; /* of the history                                               */
    bool accelerated;       /* the last step was Anderson's                                 */
    float gamma[MB_WINDOW_MAX];
    double mixed;           /* squared norm of what Anderson's combination left of last_r   */
    double weighted, plain; /* squared norms of last_r                                      */
    double shorter;         /* this sample's steps, relative to the solver's: 1, or halved  */
    uint32_t reductions;    /* how often they were halved                                   */
} mb_forward_backward;

/* The methods that forward-backward is compared with. */
typedef struct mb_peer {
    float *next, *next_u; /* the next iterate, and its log                        */
    float *softmax;       /* softmax(g), to measure the residual                  */
} mb_peer;

/* mb_solver_adjoint; see the legend in adjoint.c. */
typedef struct mb_adjoint {
    int phase;
    const float *q, *logits, *d; /* of the solution; dloss                                   */
    float *own_logits;           /* the logits, where the caller gave none                   */
    float *rest;                 /* residual; the right side before the first step           */
    float *p, *sp, *phi_sp;      /* direction p, S p and Phi S p; of the fixed point: v,
                                    alpha J v and Phi alpha J v                              */
    float *right_side;           /* kept by the fixed point alone                            */
    float *z, *sz;               /* where it is preconditioned: B^-1 rest, and S z           */
    float *blocks;               /* ... and what mb_precondition_begin keeps of the sample   */
    uint32_t *inhibited;
    size_t inhibited_count;      /* 0: it is not                                             */
    union {
        float *y;
        float *phi_w; /* what y is turned into at the end */
    };
    union {
        float *s_rest; /* S rest                          */
        float *w;      /* what takes its place at the end */
    };
    double rho, rho_first, p_norm; /* squared norms ||.||_S of rest, now and at first; of p   */
    double along;  /* <rest, z>_S: rho where z = rest                                         */
    double ratio;  /* `along` after the last step of conjugate gradients over it before that  */
    double shrink; /* the largest factor ||Phi S rest||_S / ||rest||_S that was seen         */
    bool ahead;    /* ended with a step that was not measured                                */
    float step;    /* of the last round: w grew by step times what Phi was applied to        */
    mb_adjoint_result result;
} mb_adjoint;

/* mb_solver_unrolled: the tape of the iterations, and the sweep back over them; see the legend in
 * unrolled.c. The iterations themselves are run again as an mb_iterate.                        */
typedef struct mb_sweep {
    float *tape;      /* [max_iterations + 1][2][size]: q_t and g_t; NULL without the setting */
    bool backwards;   /* the tape is full, and the sweep has begun                            */
    size_t steps, at; /* iterations of this sample; the one that has been reached             */
    const float *d;   /* dloss                                                                */
    float *a, *c, *w, *phi_w;
    float *s;         /* Frank-Wolfe's softmax; at the end, the part of the start             */
    float *total;     /* sum of all w                                                         */
    mb_adjoint_result result;
} mb_sweep;

/* mb_solver_apply_gradient */
typedef struct mb_products {
    bool second; /* Phi v is there, Phi w is next */
    float *phi_v, *phi_w;
} mb_products;

typedef struct mb_slot {
    size_t sample;
    const int32_t *observed; /* [variables]; NULL: nothing is                  */
    const float *biases; /* the sample's own, beside the model's; NULL: none */
    float *field;        /* [size]: these, where links are part of them      */
    double elsewhere;    /* at least ||q||^2 of what is hidden in other components: part of
                            what residuals are relative to                     */
    bool busy, fresh; /* fresh: still at the common start of all samples */
    const float *in;  /* what Phi is applied to next ... */
    float *out;       /* ... and where the result goes   */
    uint32_t *hidden;     /* [variables]: where the hidden ones start in a sample, run by run */
    size_t *hidden_count; /* [runs]                                                          */
    mb_sums sums;         /* how the last application of Phi took its sums, ...              */
    bool relative;        /* ... and whether it was relative to the common start             */
    float *misfit_w, *misfit_l; /* [variables and MB_LANES_MAX more]: see mb_misfit_sums     */
    mb_iterate solve;
    mb_forward_backward fb;
    mb_peer peer;
    mb_adjoint adjoint;
    mb_sweep sweep;
    mb_products products;
} mb_slot;

typedef struct mb_worker {
    mb_phi *phi;
    mb_slot *slots; /* [lanes] */
    mb_slot *active[MB_LANES_MAX]; /* those that took part in the last application of Phi */
    size_t active_count;
    size_t in_hand; /* slots that were loaded together                */
    bool bias;      /* Phi is applied with the bias: see mb_task.bias */
    double *field;  /* [size]: b of a sample as it is summed up, with links */
    mb_gradient gradient;
    mb_gradient part; /* unrolled: of the samples in hand ...                       */
    bool spoilt;      /* ... and something of one that ended badly is already in it */
    /* adjoint: whether mb_phi_add_rows has summed up the rows of w: not begun, so far, no longer */
    enum { NO_ROWS, SOME_ROWS, BROKEN_ROWS } rows;
    mb_arena arena;
    double ms_operator, ms_prox, ms_acceleration, ms_adjoint, ms_gradient, ms_other;
    uint64_t applications, iterations;
    double work_before; /* mb_phi_work when the call began */
    uint32_t converged, reductions;
    char red_zone[64]; /* keeps two workers' counters on different cache lines */
} mb_worker;

/* ------------------------------------------------------------ components.c -- */

/* Tiers that Phi connects, as a model and a solver of their own. */
typedef struct mb_component {
    mb_model *model;  /* without links, whose sums come as biases of a sample             */
    mb_solver *solver;
    size_t *tiers;    /* [its tiers]: their numbers in the whole model                     */
    size_t *blocks;   /* [its blocks] likewise                                             */
    bool linked;      /* links speak to it ...                                             */
    bool hears;       /* ... relays among them                                             */
    bool speaks;      /* relays leave it                                                   */
    double share;     /* of the tolerance                                                  */
    float *gradient;  /* [its parameters]                                                  */
} mb_component;

/* Of a model with relays: see relays.c. */
typedef struct mb_relays {
    size_t room_size;
    float *room;             /* [workers][room_size]                                         */
    float *gradient;         /* [workers][relay_weights]                                     */
    float *heard;            /* [samples][size]: U'w                                         */
    double *distance;        /* [samples][components]: || q - q* || of each, at most         */
    double *bound_room;      /* for these:                                                   */
    mb_relay_bounds *bounds; /* [links]; of the weights of this version:                     */
    uint64_t version;
} mb_relays;

/* What a solver has of a model that falls into several; else there are none. Samples go through it a
 * few at a time, so that these arrays have a size.                                            */
typedef struct mb_components {
    mb_component *list;
    size_t count;
    size_t samples;   /* that are taken at once                                            */
    uint64_t version; /* of the parameters that the components have                        */
    int32_t *observed;              /* [samples][variables of the largest]                 */
    float *q, *logits, *biases;     /* [samples][size of the largest] ...                  */
    float *start, *d, *w;           /* ... where the call has them; start and d are one    */
    float *all_biases, *all_w;      /* [samples][size], with links                         */
    const float **biases_of;        /* [samples]: those of a sample, of all tiers, or NULL */
    size_t solved;                  /* samples whose biases these are: of a solve that had no more */
    mb_link_sample *heard;          /* [samples]: what links' gradients are taken of       */
    mb_result *merged, *results;    /* [samples]: of the components so far, of the present */
    mb_adjoint_result *adjoints, *adjoint; /* likewise                                     */
    double *norms;                  /* squared, of the hidden marginals so far             */
    double *least, *elsewhere;      /* sum of 1/k over all hidden variables, over those not here */
    mb_relays relays;
    mb_arena arena;
} mb_components;

struct mb_solver {
    const mb_model *model;
    const mb_solver *outer; /* NULL, or the solver that this is a component of */
    mb_components components;
    const mb_kernels *kernels;
    mb_solver_settings settings;
    mb_pool *pool;
    size_t workers;
    size_t lanes; /* slots of a worker: as many samples as Phi is best applied to at once */
    mb_worker *worker;
    mb_run *runs;
    size_t run_count;
    mb_rounding rounding; /* up to date where certificates are asked for */
    mb_exact *exact;      /* made when it is first needed                */
    float *start_q, *start_u; /* where samples start, and its log: see mb_solver_refresh */
    float *start_g;           /* Phi start_q + b                                         */
    bool start_g_known;
    double *step;             /* [tiers]: of forward-backward                            */
    mb_precondition precondition;
    mb_lanczos lanczos;       /* the spectrum of Phi                                     */
    /* for steps that differ by tier (refresh.c); empty where the settings exclude them */
    mb_lanczos metric;        /* the spectrum of c I - Phi in the metric of the steps    */
    float *tier_vectors, *tier_room; /* see mb_tier_curvatures                           */
    double *tier_curvature;
    mb_spectrum spectrum;
    uint64_t version; /* of the model that all this belongs to */
    const float *biases; /* of the samples of a call, the caller's [biases_batch][size]; NULL: none */
    const double *elsewhere; /* of a component: [batch], see mb_slot; NULL: nothing is */
    size_t biases_batch;
    atomic_bool interrupted;
    double deadline;
    double ms_refresh; /* of the present call */
};

/* ---------------------------------------------------------------- driver.c -- */

/* What a call does with samples. A worker goes in rounds: one application of Phi to all busy slots,
 * then one step of each. With `together`, slots are loaded only when all of them are free. */
typedef struct mb_task {
    mb_solver *solver;
    /* Prepares a slot for slot->sample; may set slot->busy to false if there is nothing to do. */
    mb_status (*load)(const struct mb_task *task, mb_worker *worker, mb_slot *slot);
    /* slot->out holds Phi slot->in: takes the next step, and says whether the sample is done. */
    mb_status (*advance)(const struct mb_task *task, mb_worker *worker, mb_slot *slot, bool *done);
    /* With `together`, or NULL: all active slots have advanced. */
    mb_status (*round)(const struct mb_task *task, mb_worker *worker);
    /* With `together`, or NULL: no slot is busy any more. May make some busy again. */
    mb_status (*finish)(const struct mb_task *task, mb_worker *worker, bool *again);
    size_t batch;
    bool bias;   /* out = Phi in + b, unless worker->bias is changed on the way         */
    const int32_t *observed; /* [batch][variables], or NULL: what links hear             */
    const float *biases; /* [batch][size]: added to b, or NULL. With what links say: slot->biases */
    bool starts; /* samples begin at the solver's start; `load` says which are fresh    */
    bool together;
    bool careful;     /* see mb_phi_careful     */
    const void *call; /* the caller's arguments */
} mb_task;

mb_status mb_task_run(mb_task *task);
/* One sample, number 0, by a worker in its own thread. */
mb_status mb_task_alone(const mb_task *task, mb_worker *worker);

/* ------------------------------------------------------------------ call.c -- */

/* Milliseconds of a steady clock. */
double mb_clock(void);

/* The time that the settings allow begins. */
void mb_call_limit(mb_solver *solver);

/* Whether the call should end now: interrupted, or out of time. */
bool mb_solver_stopping(const mb_solver *solver);

/* Starts a call: takes over changed weights, clears the clocks, sets the deadline. */
mb_status mb_call_begin(mb_solver *solver);
/* Fills the report with what the workers counted. */
void mb_call_end(const mb_solver *solver, double began, mb_report *report);

/* The workers' sums of gradients: set to zero; added up in the workers' order, and chained to the
 * parameters into gradient [parameters].                                                     */
void mb_sums_clear(mb_solver *solver);
void mb_sums_collect(mb_solver *solver, float *gradient);

/* Checks of a call's arguments. `call` and `what` name the function and the argument. */
mb_status mb_batch_check(const char *call, const mb_model *model, size_t batch);
mb_status mb_observed_check(const mb_model *model, size_t batch, const int32_t *observed);
mb_status mb_finite_check(const char *what, size_t batch, size_t size, const float *values);
mb_status mb_sample_check(const char *what, size_t sample, size_t size, const float *values);
/* That the samples' own biases, if there are any, are finite and those of such a batch. */
mb_status mb_biases_check(const char *call, const mb_solver *solver, size_t batch);

/* ---------------------------------------------------------------- create.c -- */

/* A solver that is part of another one, and works with its threads: see components.c. */
mb_status mb_solver_create_within(mb_solver **solver, const mb_model *model,
                                  const mb_solver_settings *settings, const mb_solver *outer);

/* -------------------------------------------------------------- settings.c -- */

/* Whether the settings, each and together, can be used: else MB_EINVAL. */
mb_status mb_solver_settings_check(const mb_solver_settings *settings);

/* --------------------------------------------------------------- refresh.c -- */

/* Whether the settings allow a step per tier. */
bool mb_solver_tier_steps(const mb_solver_settings *settings);

/* Whether the model's parameters can be used. */
mb_status mb_solver_model_check(const mb_solver *solver);

/* Brings everything derived from the model's parameters up to date. */
mb_status mb_solver_refresh(mb_solver *solver);

/* q = softmax(u), and u = log q, of all variables. */
void mb_solver_softmax(const mb_solver *solver, float *q, float *u);

/* What a solver remembers of earlier weights: the vectors that its estimates of the spectrum start
 * from (zeros: none). The estimates decide the step sizes, so whoever wants to continue with
 * identical results keeps this.                                                             */
size_t mb_solver_memory_size(const mb_solver *solver);
void mb_solver_memory_get(const mb_solver *solver, float *memory);
void mb_solver_memory_set(mb_solver *solver, const float *memory);

/* What others may use between the solver's calls. */
mb_pool *mb_solver_pool(const mb_solver *solver);
const mb_kernels *mb_solver_kernels(const mb_solver *solver);

/* ------------------------------------------------------------------ slot.c -- */

/* The slot's sample in an array [batch][size]. */
static inline const float *mb_sample_of(const mb_solver *solver, const mb_slot *slot,
                                        const float *batch) {
    return batch + slot->sample * solver->model->size;
}

/* Lists the hidden variables of a sample; observed: [variables], or NULL for none. The rows of the
 * observed ones become one-hot in one tensor and zero in two others, which may be NULL.      */
typedef struct mb_observing {
    float *one_hot, *zero[2];
} mb_observing;

void mb_slot_observe(const mb_solver *solver, mb_slot *slot, const int32_t *observed,
                     mb_observing rows);

/* The biases of a sample beside the model's: `own` [size], or NULL, and what links make of `observed`
 * [variables], or NULL; the sum is written to `out` [size] if there is one, rounded once. NULL: none.  */
const float *mb_sample_biases(const mb_solver *solver, const int32_t *observed, const float *own,
                              double *room, float *out);

/* slot->solve.q, and u = log q, where a sample begins. With biases of its own it is not the common
 * start, but what that becomes when they are added to its logits: of softmax(b), softmax(b + its own). */
void mb_slot_start(const mb_solver *solver, const mb_worker *worker, mb_slot *slot);

/* out += b + the sample's own biases, which are added up first: their sum is rounded relative to
 * itself, however much of b they cancel.                                                      */
void mb_slot_add_biases(const mb_solver *solver, const mb_worker *worker, const mb_slot *slot,
                        float *out);

/* The step size of a run's variables for this sample. */
double mb_slot_alpha(const mb_solver *solver, const mb_slot *slot, size_t run);

/* x = beta q + alpha g, the forward step, of all variables. */
void mb_slot_forward(const mb_solver *solver, mb_slot *slot, const float *q, const float *g);

/* The rest is over the hidden variables alone. */
/* z = prox(x) with the slot's steps, or z = softmax(x), and u = log z. u and lambda may be NULL;
 * warm: as in mb_prox_args.                                                                  */
void mb_slot_prox(const mb_solver *solver, const mb_slot *slot, float *z, float *u, float *lambda,
                  const float *x, bool warm);
void mb_slot_softmax(const mb_solver *solver, const mb_slot *slot, float *z, float *u,
                     const float *x);
/* u = log q of the iterate q = prox(x). */
void mb_slot_logs(const mb_solver *solver, const mb_slot *slot, float *u);

/* out = S(q) v, S(q) = blockwise diag(q) - qq', the Jacobian of softmax; returns v'S(q) v. */
double mb_slot_covariance(const mb_solver *solver, const mb_slot *slot, float *out, const float *q,
                          const float *v);
/* out = J(q) v, the Jacobian of the prox with the solver's steps, at its result q. */
void mb_slot_prox_vjp(const mb_solver *solver, const mb_slot *slot, float *out, const float *q,
                      const float *v);

/* ------------------------------------------------------- solve.c and peers.c -- */

/* The arrays of mb_solver_solve, checked. */
typedef struct mb_solve_arrays {
    size_t batch;
    const int32_t *observed;
    const float *start;
    float *q, *logits;
    mb_result *results;
    bool certify; /* results come with certificates, gap and free energy */
} mb_solve_arrays;

mb_status mb_solve_run(mb_solver *solver, const mb_solve_arrays *arrays, mb_report *report);

/* Sets the start of all samples to the marginals of the model with nothing observed, roughly. */
mb_status mb_solve_nothing_observed(mb_solver *solver, mb_worker *worker);

/* next, next_u <- the update of q, u by a method other than forward-backward; and then
 * q, u <- next, next_u.                                                                   */
void mb_peer_update(const mb_solver *solver, mb_slot *slot);
void mb_peer_accept(const mb_solver *solver, mb_slot *slot);

/* -------------------------------------------------------------- anderson.c -- */

void mb_anderson_reset(mb_slot *slot);
/* What the squared residual of a tier with this step counts in the norm of the fit. */
double mb_anderson_weight(double alpha);
/* Finds the combination of earlier steps; `weighted` is the squared norm of r. */
void mb_anderson_fit(const mb_solver *solver, mb_slot *slot, double weighted);
/* x, which may be the slot's own, becomes the next iterate: that combination, or else T. */
void mb_anderson_step(const mb_solver *solver, mb_slot *slot, float *x);

/* ----------------------------------------------------------- certificate.c -- */

/* Fills certificate and gap of the slot's result from q and g; energy: the free energy too. */
void mb_certify(const mb_solver *solver, mb_slot *slot, bool energy);

/* What is known of Delta = q - q*. */
typedef struct mb_bounds {
    double distance; /* || Delta ||   */
    double reach;    /* || A Delta || */
    double gap;
} mb_bounds;

/* What rounding may do to the g of a sample; see the legend in certificate.c. */
typedef struct mb_errors {
    double rows;  /* E                                                       */
    double rest;  /* || rho - (u - g) ||, but for an error proportional to g */
    double norm;  /* || A q ||                                               */
    double whole; /* `rest` over all variables, not only the hidden ones     */
} mb_errors;

/* From sums over the hidden variables of a slot, of which misfit_w and misfit_l are there too. floor:
 * what rounding alone would leave of the distance.                                           */
mb_bounds mb_bounds_of(const mb_solver *solver, const mb_slot *slot, const mb_misfit_sums *sums,
                       const mb_errors *errors, double *floor);

/* sum over v of tr(P_v Cov q_v), which a free energy is above F_gain by half of; and its error. */
double mb_self_inhibition(const mb_model *model, const float *q);
double mb_self_inhibition_error(const mb_model *model);

/* --------------------------------------------------------------- adjoint.c -- */

/* The arguments of mb_solver_adjoint, checked. */
typedef struct mb_adjoint_arrays {
    size_t batch;
    const int32_t *observed;
    const float *q, *logits, *dloss;
    mb_wrt wrt;
    float *w, *gradient;
    mb_adjoint_result *results;
    bool goes_on; /* sums of gradients are neither cleared nor collected: the caller does */
    bool of_solve; /* of what the last solve was called with, and has found */
} mb_adjoint_arrays;

mb_status mb_adjoint_run(mb_solver *solver, const mb_adjoint_arrays *arrays, mb_report *report);

/* mb_solver_adjoint without its checks of numbers that come from mb_solver_solve and the loss. */
mb_status mb_solver_adjoint_of_solve(mb_solver *solver, size_t batch, const int32_t *observed,
                                     const float *q, const float *logits, const float *dloss,
                                     float *gradient, mb_adjoint_result *results,
                                     mb_report *report);

/* ------------------------------------------------------------ components.c -- */

/* A tier of a component without blocks, of one sample (biases, q: all tiers; logits, w, bias: the tier's alone):
 * its answer, and the adjoint; bias += w where a gradient is asked for, `heard` is as in mb_relays_back or NULL. */
void mb_free_solve(const mb_solver *solver, const mb_tier *tier, const int32_t *observed, const float *biases,
                   float *q, float *logits);
void mb_free_adjoint(const mb_solver *solver, const mb_tier *tier, const mb_adjoint_arrays *arrays, size_t sample,
                     float *heard, const int32_t *observed, float *w, double *bias);

/* Takes what relays need from the arena of the components. */
void mb_relays_layout(mb_solver *solver);
/* Brings the bounds up to date. */
void mb_relays_refresh(mb_solver *solver);
/* What share of the tolerance each component has: of the squares, or, with `passed`, which needs the bounds, so that
 * all are within it together with what they pass on.                                         */
void mb_relays_share(mb_solver *solver, bool passed);

/* By a worker, `index`, for `count` samples [count][size of the model]; of the component, or of all: */
#define MB_ALL_COMPONENTS SIZE_MAX
/* biases += what relays to it say. */
mb_status mb_relays_add(mb_solver *solver, size_t index, size_t component, size_t count, const float *q,
                        float *biases);
/* heard = the derivative by its answer of what it has said, where w is that by biases. */
mb_status mb_relays_back(mb_solver *solver, size_t index, size_t component, size_t count, const float *w,
                         float *heard);
/* Adds the derivative by a tier's answer that was brought back, `heard`, to d: by marginals, or, as q =
 * softmax(logits), by logits. All begin where the tier does in a sample; values: NULL, none is observed. `heard` is
 * what was added, afterwards.                                                                */
void mb_relays_add_heard(const mb_kernels *kernels, const mb_tier *tier, mb_wrt wrt, float *d, const float *q,
                         const int32_t *values, float *heard);
/* Adds the gradient by the relays' weights to the worker's. */
mb_status mb_relays_gradient(mb_solver *solver, size_t index, size_t count, const float *w, const float *q);
/* Sets the workers' gradients to zero; adds them up to `gradient` [parameters]. */
void mb_relays_clear(mb_solver *solver);
void mb_relays_collect(const mb_solver *solver, float *gradient);

/* What the biases of a component are off by at most, in its norm, where the answers that it heard are off by
 * `distance` [components], and its biases have the norm `biases`; exact: they were made by mb_relay_add_exact. */
double mb_relays_error(const mb_solver *solver, size_t component, const double *distance, double biases,
                       bool exact);
/* A distance from q*, or what is proven of it: two distributions are never further apart than sqrt(2), and where
 * nothing is hidden the answer is exact.                                                      */
double mb_relays_clip(double certificate, size_t hidden);
/* Multiply-adds of one pass of all relays over a sample. */
double mb_relays_work(const mb_solver *solver);

/* Whether the solver's calls go to components: then mb_components_* is what to call. */
static inline bool mb_solver_apart(const mb_solver *solver) {
    return solver->components.count > 0;
}
/* Whether they will, once the components are made. Unrolled iterations are repeated as a whole. */
static inline bool mb_solver_divides(const mb_solver *solver) {
    return solver->model->component_count > 1 && !solver->settings.unrolled;
}
/* Makes them, where the model has more than one. */
mb_status mb_components_create(mb_solver *solver);
void mb_components_destroy(mb_solver *solver);
/* The solver's settings, as one of its components has them. */
mb_solver_settings mb_component_settings(const mb_solver *solver, const mb_component *c);
/* Adds what the component has for each of its parameters to that of the whole model. */
void mb_component_add(const mb_solver *solver, const mb_component *c, const float *part, float *whole);
/* Gives the components the parameters of the model, if they have changed. */
mb_status mb_components_refresh(mb_solver *solver);
/* After that: the bounds of all, the shortest step. */
mb_spectrum mb_components_spectrum(const mb_solver *solver);
mb_status mb_components_solve(mb_solver *solver, const mb_solve_arrays *arrays, mb_report *report);
mb_status mb_components_adjoint(mb_solver *solver, const mb_adjoint_arrays *arrays,
                                mb_report *report);
mb_outcome mb_worse_outcome(mb_outcome a, mb_outcome b);
/* mb_solver_refine of a model with relays, its arguments checked. */
mb_status mb_components_refine(mb_solver *solver, size_t batch, const int32_t *observed, const float *start,
                               const mb_refine_settings *settings, double *q, double *logits, double *bounds,
                               mb_result *results, mb_report *report);

#endif
