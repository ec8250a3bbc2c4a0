/* clang-format off */
/* tracestep as a library: training steps of a captured module, in the caller's process and in the
 * caller's memory. Plain C; nothing is thrown, printed on stdout or kept after a failed call.
 *
 * Order    open a session (a device, and weights by name); plan runs of a program; lend memory;
 *          start them, which allocates the rest; then set inputs and rates, go, get. Runs of one
 *          session share weights and states by their names.
 * Program  A folder that tracestep.capture of Python wrote, or a file with the text of a forward
 *          program, as `tracestep show` prints one.
 * Words    What flags of the program's commands say, "name=value" and separated by spaces:
 *          "device=cuda:0 precision=bf16 recompute=blocks executor=compiled". device, threads,
 *          memory_limit and precision are of the session; a step is meant, so `mode` is none.
 * Memory   Lent memory stays the caller's, and must live until the session is closed. It is host
 *          memory for the devices cpu and reference, device memory of that GPU for cuda. Leaves that
 *          have a block lie in it side by side.
 * Rule     AdamW and SGD as PyTorch computes them: eps is added to the corrected root; SGD's decay
 *          is added to the gradient. There is no momentum.
 * Ranks    Processes that train one model, each with a batch of its own, join their sessions: losses
 *          and gradients of BACKWARD, STEP and UPDATE are then means over all ranks, and calls from
 *          plan to go are made by all of them, in one order, on programs of one shape.
 * Threads  A session's calls wait for each other; sessions are independent. In a fork, which has none
 *          of its threads, a session is refused.
 * Status   0, or what tracestep_message() says in words: an exit status of the program.
 */
/* clang-format on */
#ifndef TRACESTEP_H_
#define TRACESTEP_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): C has no namespaces */
#define TRACESTEP_INTERFACE 1 /* grows when a function or a member changes its meaning */

typedef enum {
  TRACESTEP_OK = 0,
  TRACESTEP_FAILED = 1,        /* the run failed, or a fault of ours */
  TRACESTEP_USAGE = 2,         /* a word, a name, a size or an order of calls that is none */
  TRACESTEP_INPUT = 3,         /* a file is missing or malformed */
  TRACESTEP_OUT_OF_MEMORY = 4, /* what the call had taken is free again */
  TRACESTEP_OUTPUT = 5,        /* a file cannot be written */
  TRACESTEP_DEVICE = 6,        /* the device is missing from this build or machine */
  TRACESTEP_NOT_FINITE = 8     /* a number to be saved is infinite or NaN */
} tracestep_outcome;

typedef enum {
  TRACESTEP_FORWARD = 0,  /* the outputs "loss" and, where the module has them, "logits" */
  TRACESTEP_BACKWARD = 1, /* and "grad.NAME" of every parameter */
  TRACESTEP_STEP = 2,     /* forward, backward and update */
  TRACESTEP_FIRST = 3,    /* of several micro-batches: sets the states "grad.NAME" */
  TRACESTEP_NEXT = 4,     /* adds to them */
  TRACESTEP_UPDATE = 5    /* updates by them; planned when FIRST or NEXT has been started */
} tracestep_kind;

typedef enum { TRACESTEP_ADAMW = 0, TRACESTEP_SGD = 1 } tracestep_rule;

typedef enum {
  TRACESTEP_IN = 0,        /* an input of the run */
  TRACESTEP_PARAMETER = 1, /* a weight that is trained */
  TRACESTEP_CONSTANT = 2,  /* a frozen weight, a mask, a table */
  TRACESTEP_STATE = 3,     /* a moment, a gradient, a narrow copy */
  TRACESTEP_ARENA = 4,     /* all temporaries together, called "arena" */
  TRACESTEP_OUT = 5        /* an output */
} tracestep_role;

typedef struct tracestep_session tracestep_session;
typedef struct tracestep_run tracestep_run;

/* Parameters that are updated alike. */
typedef struct {
  const char* const* parameters; /* names */
  int64_t count;                 /* of them; 0 in the only group: all */
  double beta1, beta2, eps, weight_decay;
} tracestep_group;

typedef struct {
  int64_t size;      /* sizeof(tracestep_options) */
  const char* words; /* NULL: none */
  int32_t rule;      /* tracestep_rule */
  /* Micro-batches of a step: FIRST and NEXT have 1/accumulate of the loss, and of that 1/count
   * where `count` ranks have joined. 0: 1. */
  int32_t accumulate;
  /* The largest norm of all gradients, which are scaled down to it; INFINITY: any. Both give the
   * output "grad_norm", the norm before that. 0: any, and no such output. */
  double clip;
  const tracestep_group* groups;
  int64_t group_count; /* 0: one group, 0.9, 0.999, 1e-8 and no decay */
  /* Factors on the scale of a loss in float16 (state "loss_scale", at first 65536): after
   * scale_interval good steps in a row, and after one with overflow, which updates nothing. */
  double scale_growth;    /* 0: 2 */
  double scale_backoff;   /* 0: 0.5 */
  int64_t scale_interval; /* 0: 2000 */
} tracestep_options;

/* Processes that train together. Both functions are called by all ranks, in the same order, from
 * within calls of the session; they return 0, or that call fails. */
typedef struct {
  int64_t size;        /* sizeof(tracestep_ranks) */
  int32_t rank, count; /* this one, of so many; every one has a session */
  void* context;       /* for the functions, which stay until the session is closed */
  /* `all` gets the `bytes` of every rank, in their order: a few, in host memory. */
  int (*gather)(void* context, const void* own, void* all, int64_t bytes);
  /* `count` numbers at `data`, "f32" or "f64" in host memory, become their sums over all ranks, of
   * which each gets the same bits. On GPUs it is not called: NCCL, which is found at run time or
   * loaded already, connects these. */
  int (*sum)(void* context, void* data, int64_t count, const char* dtype);
} tracestep_ranks;

/* Bytes of a run. */
typedef struct {
  int64_t peak;   /* alive at once at the most, leaves included, exactly */
  int64_t lent;   /* of these, in lent memory */
  int64_t shared; /* of these, leaves that earlier runs of the session hold */
  int64_t own;    /* the rest: what this run allocates */
} tracestep_bytes;

typedef struct {
  const char* name;
  const char*
      dtype;    /* "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "u8", "bool" */
  int32_t role; /* tracestep_role */
  int32_t rank;
  int64_t shape[8];
  int64_t bytes;
  const char* block; /* "": memory of its own; else leaves of this block lie in one piece */
  int64_t offset;    /* bytes from the block's beginning */
} tracestep_tensor;

/* Returns TRACESTEP_INTERFACE as the library was built with it. */
int tracestep_interface(void);
/* Says why this thread's last call failed, in words that stay until its next call. */
const char* tracestep_message(void);

/* Opens a session: makes its device and, on a GPU, the scratch memory of products. */
int tracestep_open(const tracestep_options* options, tracestep_session** out);
/* Connects the session to the other ranks, before its first plan. On GPUs each rank has its own. */
int tracestep_join(tracestep_session* session, const tracestep_ranks* ranks);
/* Closes a session and ends its runs; does nothing for NULL. */
void tracestep_close(tracestep_session* session);

/* Makes the program of a run, and allocates nothing. `program`: the folder or the file. The run
 * belongs to the session. UPDATE takes NULL. */
int tracestep_plan(tracestep_session* session, const char* program, int kind, tracestep_run** out);
/* Ends a run before its session: frees its inputs and temporaries; weights and states stay. */
void tracestep_end(tracestep_run* run);
/* Gets the bytes of a run as planned, with the memory that is lent so far. */
int tracestep_size(const tracestep_run* run, tracestep_bytes* out);
/* Describes tensor 0, 1, … of a run; TRACESTEP_USAGE after the last. Texts live as long as it. */
int tracestep_tensor_at(const tracestep_run* run, int64_t index, tracestep_tensor* out);

/* Makes the tensor of this name lie at `data` in all runs that are started from now on. Its values
 * are kept, those of an input too; `data` is at a multiple of 64 bytes, on a GPU of 256. */
int tracestep_lend(tracestep_session* session, const char* name, void* data, int64_t bytes);
/* Allocates what is not lent; chooses kernels. Parameters that are not lent are unset; other states
 * are 0, and a loss scale what it starts at. */
int tracestep_start(tracestep_run* run);
/* Sets parameters and constants to those of the program's folder; random ones if it has none. */
int tracestep_load(tracestep_run* run);
/* Writes the weights under the module's names, as safetensors. */
int tracestep_save(tracestep_run* run, const char* path);

/* Copy all `bytes` of a tensor from or to host memory. An output stays until the next go. */
int tracestep_set(tracestep_run* run, const char* name, const void* data, int64_t bytes);
int tracestep_get(tracestep_run* run, const char* name, void* data, int64_t bytes);
/* Sets, for STEP and UPDATE, a group's learning rate and the number of its step, from 1. */
int tracestep_rate(tracestep_run* run, int64_t group, double rate, int64_t step);
/* Says that the owner has changed a lent parameter: its narrow copies are made anew. */
int tracestep_refresh(tracestep_session* session, const char* name);

/* Runs once. On a GPU the work is issued after what `stream`, a cudaStream_t, has so far, and
 * `stream` then waits for it; elsewhere it is done on return, and `stream` is ignored. */
int tracestep_go(tracestep_run* run, void* stream);
/* Waits for all work; tells what went wrong in it. */
int tracestep_wait(tracestep_session* session);
/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* TRACESTEP_H_ */
