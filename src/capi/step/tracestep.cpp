// The functions of the C interface: each checks its arguments, calls the session, and turns
// exceptions into a status and a message.
#include "capi/tracestep.h"

#include <cstddef>
#include <new>
#include <optional>
#include <string>

#include "base/error.h"
#include "capi/step/devices.h"
#include "capi/step/step_session.h"

// The types of the handles that the C header declares.
struct tracestep_session : tracestep::capi::StepSession {
  using StepSession::StepSession;
};
struct tracestep_run;

namespace {

using tracestep::Error;
using tracestep::fail_usage;
using tracestep::capi::OnDevice;
using tracestep::capi::StepOptions;
using tracestep::capi::StepRun;
using tracestep::capi::StepSession;

thread_local std::string last_message;

StepRun* own(tracestep_run* run) {
  return reinterpret_cast<StepRun*>(run);
}
const StepRun* own(const tracestep_run* run) {
  return reinterpret_cast<const StepRun*>(run);
}

int status_of(const Error& error) {
  last_message = error.what();
  return tracestep::exit_code(error.code());
}

// Calls `act`; returns 0, or the status of the exception that `act` throws, and throws nothing.
template <class Act>
int guarded(const Act& act) noexcept {
  try {
    last_message.clear();
    act();
    return TRACESTEP_OK;
  } catch (const Error& error) {
    return status_of(error);
  } catch (const std::bad_alloc&) {
    last_message = "the host's memory is full";
    return TRACESTEP_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_message = error.what();
    return TRACESTEP_FAILED;
  } catch (...) {
    last_message = "an unknown fault";
    return TRACESTEP_FAILED;
  }
}

template <class T>
T& given(T* pointer, const char* what) {
  if (pointer == nullptr) fail_usage(what, "it is NULL");
  return *pointer;
}

// Calls `act` with the session's lock held and its device current; returns what guarded() returns.
template <class Act>
int in_session(StepSession* session, const Act& act) noexcept {
  return guarded([&] {
    if (given(session, "session").is_of_parent()) {
      fail_usage("session", "this process is a fork of the one that opened it: open one here");
    }
    const std::lock_guard lock(session->mutex());
    const OnDevice here(session->device().name());
    act();
  });
}

template <class Act>
int in_run(const tracestep_run* run, const Act& act) noexcept {
  return in_session(run == nullptr ? nullptr : &own(run)->session(), act);
}

tracestep::UpdateGroup group_of(const tracestep_group& group) {
  tracestep::UpdateGroup out{.beta1 = group.beta1,
                             .beta2 = group.beta2,
                             .eps = group.eps,
                             .weight_decay = group.weight_decay};
  for (int64_t i = 0; i < group.count; ++i) {
    given(group.parameters, "groups");
    out.parameters.insert(&given(group.parameters[i], "groups"));
  }
  return out;
}

StepOptions options_of(const tracestep_options& options) {
  if (options.size != static_cast<int64_t>(sizeof(tracestep_options))) {
    fail_usage("options", "their size is {}; this library's is {}", options.size,
               sizeof(tracestep_options));
  }
  if (options.rule != TRACESTEP_ADAMW && options.rule != TRACESTEP_SGD) {
    fail_usage("rule", "{} is none", options.rule);
  }
  if (options.accumulate < 0 || !(options.clip >= 0.0)) {
    fail_usage("options", "accumulate {} and clip {} are 0 or more", options.accumulate,
               options.clip);
  }
  if (!(options.scale_growth >= 0.0 && options.scale_backoff >= 0.0) ||
      options.scale_interval < 0) {
    fail_usage("options", "growth {}, backoff {} and interval {} of the loss scale are 0 or more",
               options.scale_growth, options.scale_backoff, options.scale_interval);
  }
  using Kind = tracestep::OptimizerKind;
  StepOptions out{.words = options.words == nullptr ? "" : options.words,
                  .rule = options.rule == TRACESTEP_SGD ? Kind::kSgd : Kind::kAdamw,
                  .clip = options.clip,
                  .accumulate = options.accumulate == 0 ? 1 : options.accumulate};
  tracestep::LossScaling& scaling = out.loss_scaling;
  if (options.scale_growth > 0.0) scaling.growth = options.scale_growth;
  if (options.scale_backoff > 0.0) scaling.backoff = options.scale_backoff;
  if (options.scale_interval > 0) scaling.growth_interval = options.scale_interval;
  for (int64_t i = 0; i < options.group_count; ++i) {
    out.groups.push_back(group_of((&given(options.groups, "groups"))[i]));
  }
  return out;
}

}  // namespace

int tracestep_interface(void) {
  return TRACESTEP_INTERFACE;
}

const char* tracestep_message(void) {
  return last_message.c_str();
}

int tracestep_open(const tracestep_options* options, tracestep_session** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    *out = new tracestep_session(options_of(given(options, "options")));
  });
}

int tracestep_join(tracestep_session* session, const tracestep_ranks* ranks) {
  return in_session(session, [&] { session->join(given(ranks, "ranks")); });
}

void tracestep_close(tracestep_session* session) {
  if (session == nullptr || session->is_of_parent()) return;
  in_session(session, [&] { session->close(); });
  delete session;
}

int tracestep_plan(tracestep_session* session, const char* program, int kind, tracestep_run** out) {
  return in_session(session, [&] {
    given(out, "out") = nullptr;
    *out = reinterpret_cast<tracestep_run*>(session->plan(program, kind));
  });
}

void tracestep_end(tracestep_run* run) {
  if (run != nullptr) in_run(run, [&] { own(run)->session().end(own(run)); });
}

int tracestep_size(const tracestep_run* run, tracestep_bytes* out) {
  return in_run(run, [&] { given(out, "out") = own(run)->size(); });
}

int tracestep_tensor_at(const tracestep_run* run, int64_t index, tracestep_tensor* out) {
  return in_run(run, [&] {
    const tracestep_tensor* const tensor = own(run)->tensor(index);
    if (tensor == nullptr) fail_usage("index", "there is no tensor {}", index);
    given(out, "out") = *tensor;
  });
}

int tracestep_lend(tracestep_session* session, const char* name, void* data, int64_t bytes) {
  return in_session(session, [&] { session->lend(&given(name, "name"), data, bytes); });
}

int tracestep_start(tracestep_run* run) {
  return in_run(run, [&] { own(run)->start(); });
}

int tracestep_load(tracestep_run* run) {
  return in_run(run, [&] { own(run)->load(); });
}

int tracestep_save(tracestep_run* run, const char* path) {
  return in_run(run, [&] { own(run)->save(&given(path, "path")); });
}

int tracestep_set(tracestep_run* run, const char* name, const void* data, int64_t bytes) {
  return in_run(run, [&] { own(run)->set(&given(name, "name"), data, bytes); });
}

int tracestep_get(tracestep_run* run, const char* name, void* data, int64_t bytes) {
  return in_run(run, [&] { own(run)->get(&given(name, "name"), data, bytes); });
}

int tracestep_rate(tracestep_run* run, int64_t group, double rate, int64_t step) {
  return in_run(run, [&] { own(run)->set_rate(group, rate, step); });
}

int tracestep_refresh(tracestep_session* session, const char* name) {
  return in_session(session, [&] { session->refresh(&given(name, "name")); });
}

int tracestep_go(tracestep_run* run, void* stream) {
  return in_run(run, [&] { own(run)->go(stream); });
}

int tracestep_wait(tracestep_session* session) {
  return in_session(session, [&] { session->device().synchronize(); });
}
