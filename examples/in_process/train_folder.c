/* Trains a module that tracestep.capture wrote to a folder, without Python: inputs of its example, ten steps of AdamW,
 * the weights at the end under the module's names.
 *
 *     train_folder FOLDER WEIGHTS.safetensors [WORDS]
 */
#include <tracestep/tracestep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status) {
  if (status == TRACESTEP_OK) return;
  fprintf(stderr, "train_folder: %s\n", tracestep_message());
  exit(status);
}

/* Fills integers with a pattern below `high`, and numbers with one around 0. */
static void fill(tracestep_run* run, const tracestep_tensor* x) {
  char* values = calloc(1, (size_t)x->bytes + 1);
  for (int64_t i = 0; !strcmp(x->dtype, "i64") && i < x->bytes / 8; ++i) ((int64_t*)values)[i] = i * 7 % 5;
  for (int64_t i = 0; !strcmp(x->dtype, "f32") && i < x->bytes / 4; ++i) ((float*)values)[i] = (float)(i % 7) / 3 - 1;
  check(tracestep_set(run, x->name, values, x->bytes));
  free(values);
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "train_folder FOLDER WEIGHTS [WORDS]\n"), TRACESTEP_USAGE;
  const tracestep_options options = {
      .size = sizeof options, .words = argc > 3 ? argv[3] : "device=cpu", .rule = TRACESTEP_ADAMW, .clip = 1.0};
  tracestep_session* session = NULL;
  tracestep_run* run = NULL;
  check(tracestep_open(&options, &session));
  check(tracestep_plan(session, argv[1], TRACESTEP_STEP, &run));

  tracestep_bytes bytes; /* known before anything is allocated */
  check(tracestep_size(run, &bytes));
  printf("a step takes %lld bytes\n", (long long)bytes.peak);
  check(tracestep_start(run));
  check(tracestep_load(run));

  tracestep_tensor x;
  for (int64_t i = 0; tracestep_tensor_at(run, i, &x) == TRACESTEP_OK; ++i)
    if (x.role == TRACESTEP_IN && strcmp(x.name, "lr") && strcmp(x.name, "step_size")) fill(run, &x);

  float first = 0, loss = 0;
  for (int64_t step = 1; step <= 10; ++step) {
    check(tracestep_rate(run, 0, 1e-2, step));
    check(tracestep_go(run, NULL));
    check(tracestep_get(run, "loss", &loss, sizeof loss));
    if (step == 1) first = loss;
    printf("step %2lld  loss %.4f\n", (long long)step, loss);
  }
  check(tracestep_save(run, argv[2]));
  tracestep_close(session);
  return loss < first ? 0 : 1;
}
