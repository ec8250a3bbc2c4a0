#include "train/fingerprint.h"

#include "base/error.h"

namespace tracestep {
namespace {

struct Entry {
  const char* key;
  const char* flags;
};

// Which flags decide an entry. The tokens come last: the flags before explain them better.
constexpr Entry kEntries[] = {{"model", "--size (vocab, d_model, d_ff, layers, heads)"},
                              {"batch", "--batch"},
                              {"context", "--context"},
                              {"accumulate", "--accumulate"},
                              {"order", "--order"},
                              {"precision", "--precision"},
                              {"seed", "--seed"}};

std::int64_t count_of(const Json& run, const char* key) {
  const Json* found = run.find(key);
  return found == nullptr ? 0 : found->as_int();
}

std::string text_of(const Json* value) {
  if (value == nullptr) return "nothing";
  return value->is_string() ? value->as_string() : value->dump();
}

[[noreturn]] void refuse(std::string_view flags, std::string_view before, std::string_view now) {
  throw Error(
      ErrorCode::kUsage, "--resume",
      fmt::format("the checkpoint was trained with another {}: {}, now {}", flags, before, now),
      "use the same options, or an empty folder");
}

std::int64_t held_out(const Json& run) {
  return count_of(run, "validation_tokens");
}

std::int64_t all_tokens(const Json& run) {
  return count_of(run, "tokens") + held_out(run);
}

std::string share_of(const Json& run) {
  return fmt::format("{} of {} tokens", held_out(run), all_tokens(run));
}

std::string validation_of(const Json& run) {
  if (held_out(run) == 0) return "off";
  return fmt::format("{}, which keeps {} for validation", count_of(run, "validate_every"),
                     share_of(run));
}

// Validation takes its tokens from those trained on, so its flags change their number, too.
void check_tokens(const Json& saved, const Json& now) {
  if (count_of(saved, "tokens") == count_of(now, "tokens")) return;
  if (all_tokens(saved) != all_tokens(now)) {
    refuse("--text or --tokens", fmt::format("{} tokens", all_tokens(saved)),
           fmt::format("{} tokens", all_tokens(now)));
  }
  if (held_out(saved) == 0 || held_out(now) == 0) {
    refuse("--validate-every", validation_of(saved), validation_of(now));
  }
  refuse("--validation-fraction", share_of(saved), share_of(now));
}

}  // namespace

Json fingerprint(const TrainOptions& o, const TokenSource& tokens, const TokenSource* validation) {
  Json out = Json::object();
  const ModelConfig& m = o.model;
  out["model"] = Json(Json::Array{m.vocab, m.d_model, m.d_ff, m.layers, m.heads});
  out["batch"] = o.shape.batch;
  out["context"] = o.shape.context;
  out["accumulate"] = o.accumulate;
  out["order"] = o.order == Order::kSequential ? "sequential" : "shuffled";
  out["precision"] = name_of(m.precision);
  out["seed"] = static_cast<std::int64_t>(o.seed);
  out["tokens"] = tokens.size();
  out["validation_tokens"] = validation == nullptr ? 0 : validation->size();
  out["validate_every"] = o.validate_every;
  return out;
}

void check_same_run(const Json& saved, const Json& now) {
  for (const auto& [key, flags] : kEntries) {
    const Json *before = saved.find(key), *after = now.find(key);
    if (before == nullptr || !(*before == *after)) refuse(flags, text_of(before), text_of(after));
  }
  check_tokens(saved, now);
}

}  // namespace tracestep
