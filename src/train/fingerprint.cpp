#include "train/fingerprint.h"

#include <algorithm>
#include <functional>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "captured/captured_model.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "train/train_fields.h"

namespace tracestep {
namespace {

constexpr const char* kChanges = "changes";
constexpr const char* kValidationBatches = "validation-batches";
constexpr std::int64_t kOlderValidationBatches = 8;

struct Run {
  const TrainOptions& options;
  const RunContent& content;

  bool is_cosine() const { return options.schedule.kind == ScheduleKind::kCosine; }
  std::int64_t tokens() const { return content.tokens + content.validation_tokens; }
};

enum class OnChange : std::uint8_t {
  kRefuse,          // always
  kAsk,             // unless the change is accepted by name
  kWarnOfRounding,  // accepted: the same step, whose sums are rounded elsewhere or in another order
};

struct Entry {
  std::string key;        // in checkpoints, in messages and in a list of accepted changes
  std::string also = {};  // other settings that decide it, for messages
  // Returns the value; null if the entry does not apply, as the value of an earlier entry shows.
  std::function<Json(const Run&)> value;
  OnChange on_change = OnChange::kAsk;
  Json older = {};  // the value for checkpoints older than the entry; null: unknown
};

Json model_of(const Run& run) {
  const ModelConfig& m = run.options.run.model;
  if (m.captured != nullptr) return Json::Array{m.name, m.captured->digest};
  Json::Array out{m.vocab, m.d_model, m.d_ff, m.layers, m.heads};
  Json architecture = architecture_of(m);
  if (!architecture.members().empty()) out.push_back(std::move(architecture));
  return out;
}

// The optimizer's kind, and those of its numbers that only callers of the library can set.
Json optimizer_of(const Run& run) {
  const OptimizerOptions& o = run.options.run.optimizer;
  const LossScaling& scaling = o.loss_scaling;
  return Json::Array{std::string(name_of(o.kind)), scaling.growth, scaling.backoff,
                     scaling.growth_interval};
}

// The numbers that follow the optimizer's kind in checkpoints of versions without flags for them.
constexpr const char* kOnceOfOptimizer[] = {"beta1", "beta2", "eps"};

std::string tokens_text(std::int64_t tokens) {
  return fmt::format("{} tokens", tokens);
}

std::string validation_text(std::int64_t held_out, std::int64_t tokens) {
  return held_out == 0 ? "off" : fmt::format("{} of {}", held_out, tokens_text(tokens));
}

using R = const Run&;

// Adds the fields of the run that decide its bits, but for the model and the optimizer, which are
// entries of their own, and the mode, which is always a step.
void add_fields(std::vector<Entry>& out) {
  for (const RunField& field : run_fields()) {
    const bool decides_bits = field.role == FieldRole::kProgram || field.role == FieldRole::kBits;
    if (!decides_bits || field.group == FieldGroup::kModel || field.name == "mode") continue;
    if (field.name == "optimizer") continue;
    out.push_back({.key = field.name,
                   .value = [&field](R r) { return field.value(r.options.run); },
                   .on_change = field.is_kept ? OnChange::kRefuse : OnChange::kAsk,
                   .older = field.is_optional ? field.value(RunSpec()) : Json()});
  }
}

// Adds the training's own fields, and the length of its schedule if that has one.
void add_training(std::vector<Entry>& out) {
  for (const TrainField& field : train_fields()) {
    if (field.role == FieldRole::kProtocol) continue;
    out.push_back({.key = with_dashes(field.name),
                   .value =
                       [&field](R r) {
                         const bool applies = !field.applies || field.applies(r.options);
                         return applies ? field.value(r.options) : Json();
                       },
                   .on_change = field.is_kept ? OnChange::kRefuse : OnChange::kAsk,
                   .older = field.is_optional ? field.value(TrainOptions()) : Json()});
  }
  out.push_back({.key = "steps", .value = [](R r) {
                   return r.is_cosine() ? Json(r.options.schedule.total_steps) : Json();
                 }});
}

// The compile passes of the step, joined by +: each executor has its own.
std::string passes_of(const Run& run) {
  const std::vector<std::string> out = compile_passes_of(run.options.run);
  return out.empty() ? "none" : fmt::format("{}", fmt::join(out, "+"));
}

// Returns the part of the run's parallelism that decides the order of sums and where they are
// rounded; null with shards, which fix the order. Where ranks hold parts of the gradients, the norm
// that clips is added up part by part.
Json order_of_sums(const Run& run) {
  if (run.options.shards > 0) return {};
  const Parallel& p = run.options.run.parallel;
  const bool norms_parts = p.shards_optimizer() && run.options.run.optimizer.clip > 0;
  return name_of(Parallel{.ranks = p.ranks,
                          .tensor = p.tensor,
                          .divides_rows = p.divides_rows,
                          .shard = norms_parts ? 1 : 0,
                          .low_sums = p.low_sums});
}

// Adds entries for settings of speed that change only how the sums of a step are rounded.
void add_rounding(std::vector<Entry>& out) {
  out.push_back({.key = "compile_passes",
                 .also = " (of the executor, or named)",
                 .value = passes_of,
                 .on_change = OnChange::kWarnOfRounding});
  const auto add_chunks = [&out](const char* name, Json older) {
    out.push_back({.key = name,
                   .value = [field = &field_named(run_fields(), name)](
                                R r) { return field->value(r.options.run); },
                   .on_change = OnChange::kWarnOfRounding,
                   .older = std::move(older)});
  };
  add_chunks("loss_chunks", {});
  add_chunks("ffn_chunks", "1");
  out.push_back(
      {.key = "parallel", .value = order_of_sums, .on_change = OnChange::kWarnOfRounding});
}

std::vector<Entry> all_entries() {
  std::vector<Entry> out{
      {.key = "model",
       .also = " (vocab, d_model, d_ff, layers, heads, architecture)",
       .value = model_of,
       .on_change = OnChange::kRefuse},
      {.key = "optimizer", .value = optimizer_of, .on_change = OnChange::kRefuse},
      // The GPUs of a machine are taken as equal: "cuda:1" is "cuda".
      {.key = "device", .value = [](R r) -> Json {
         return r.content.device.substr(0, r.content.device.find(':'));
       }}};
  add_fields(out);
  add_training(out);
  out.push_back({.key = "init",
                 .value = [](R r) -> Json {
                   return r.content.init.empty() ? "none"
                                                 : "weights with the hash " + r.content.init;
                 },
                 .on_change = OnChange::kRefuse});
  out.push_back({.key = "text", .also = ", tokens or tokenizer", .value = [](R r) -> Json {
                   return fmt::format("{} with the hash {}", tokens_text(r.tokens()),
                                      r.content.text);
                 }});
  out.push_back({.key = "validation", .value = [](R r) -> Json {
                   return validation_text(r.content.validation_tokens, r.tokens());
                 }});
  out.push_back({.key = kValidationBatches,
                 .value = [](R r) -> Json {
                   const bool validates = r.content.validation_tokens > 0;
                   return validates ? Json(r.options.validation_batches) : Json();
                 },
                 .older = kOlderValidationBatches});
  add_rounding(out);
  return out;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = all_entries();
  return all;
}

std::vector<std::string> names_of_changes() {
  std::vector<std::string> out;
  for (const Entry& entry : entries()) {
    if (entry.on_change == OnChange::kAsk) out.emplace_back(entry.key);
  }
  return out;
}

// Returns the value as printable text, because a checkpoint may hold any text.
std::string text_of(const Json& value) {
  return printable(value.is_string() ? value.as_string() : value.dump());
}

// Returns both values as texts; of two lists of the same length only the items that differ.
std::pair<std::string, std::string> texts_of(const Json& before, const Json& now) {
  const bool are_lists = before.is_array() && now.is_array();
  if (!are_lists || before.items().size() != now.items().size()) {
    return {text_of(before), text_of(now)};
  }
  std::vector<std::string> was, is;
  for (std::size_t i = 0; i < now.items().size(); ++i) {
    if (before.items()[i] == now.items()[i]) continue;
    was.push_back(text_of(before.items()[i]));
    is.push_back(text_of(now.items()[i]));
  }
  return {fmt::format("{}", fmt::join(was, ", ")), fmt::format("{}", fmt::join(is, ", "))};
}

Json with_factors_apart(Json saved) {
  constexpr std::size_t kCount = std::size(kOnceOfOptimizer);
  const Json* optimizer = saved.find("optimizer");
  if (optimizer == nullptr || saved.find(kOnceOfOptimizer[0]) != nullptr) return saved;
  std::vector<Json> kept = optimizer->items();
  if (kept.size() <= kCount) return saved;
  const auto first = kept.begin() + 1, end = first + kCount;
  for (std::size_t i = 0; i < kCount; ++i) saved[kOnceOfOptimizer[i]] = kept[i + 1];
  kept.erase(first, end);
  saved["optimizer"] = Json::Array(kept.begin(), kept.end());
  return saved;
}

// Returns a checkpoint's entries in the form that they have now. One of schema
// tracestep.checkpoint/1 has numbers of tokens in the place of the entries "text" and "validation".
Json upgraded(const Json& saved, const Json& now) {
  const Json *tokens = saved.find("tokens"), *held_out = saved.find("validation_tokens");
  Json out = with_factors_apart(saved);
  if (tokens == nullptr || held_out == nullptr) return out;
  const std::int64_t all = tokens->as_int() + held_out->as_int();
  out["validation"] = validation_text(held_out->as_int(), all);
  // Only the text's length is known: equal lengths count as no difference.
  if (!now.at("text").as_string().starts_with(tokens_text(all))) out["text"] = tokens_text(all);
  return out;
}

struct Difference {
  const Entry* entry;
  Json before, now;
};

// Returns the entries that differ. `unknown` gets the keys that only `now` has.
std::vector<Difference> differences_of(const Json& saved, const Json& now,
                                       std::vector<std::string>& unknown) {
  std::vector<Difference> out;
  const Json run = upgraded(saved, now);
  for (const Entry& entry : entries()) {
    const Json* before = run.find(entry.key);
    if (before == nullptr && !entry.older.is_null()) before = &entry.older;
    const Json& after = now.at(entry.key);
    if (after.is_null()) continue;
    if (before == nullptr) {
      unknown.emplace_back(entry.key);
    } else if (!before->is_null() && before->dump() != after.dump()) {
      out.push_back({&entry, *before, after});
    }
  }
  return out;
}

[[noreturn]] void refuse(const std::vector<Difference>& refused) {
  std::vector<std::string> texts, keys;
  bool may_change = true;
  for (const auto& [entry, before, now] : refused) {
    const auto [was, is] = texts_of(before, now);
    texts.push_back(fmt::format("other {}{}: {}, now {}", entry->key, entry->also, was, is));
    keys.emplace_back(entry->key);
    may_change = may_change && entry->on_change == OnChange::kAsk;
  }
  throw Error(ErrorCode::kUsage, "resume"_field,
              fmt::format("the checkpoint was trained with {}", fmt::join(texts, "; ")),
              may_change
                  ? fmt::format("use the same options, or go on with these by " TRACESTEP_OPTION(
                                    change) " {}",
                                fmt::join(keys, ","))
                  : "use the same options, or another folder");
}

}  // namespace

Json fingerprint(const TrainOptions& options, const RunContent& content) {
  Json out = Json::object();
  for (const Entry& entry : entries()) out[entry.key] = entry.value({options, content});
  return out;
}

void check_changes(std::span<const std::string> names) {
  const std::vector<std::string> known = names_of_changes();
  for (const std::string& name : names) {
    const auto entry = std::ranges::find(entries(), name, &Entry::key);
    const bool is_entry = entry != entries().end();
    if (is_entry && entry->on_change != OnChange::kRefuse) continue;
    throw Error(ErrorCode::kUsage, "change"_field,
                is_entry ? fmt::format("{} cannot change in the middle of a run", name)
                         : fmt::format("there is no \"{}\"{}", name, did_you_mean(name, known)),
                fmt::format("one of {}", fmt::join(known, ", ")));
  }
}

std::int64_t validation_batches_of(const Json& saved) {
  const Json* found = saved.find(kValidationBatches);
  if (found == nullptr) return kOlderValidationBatches;
  return found->is_null() ? 0 : found->as_int();
}

Json continue_run(const Json& saved, const Json& now, std::span<const std::string> changes,
                  std::int64_t step) {
  std::vector<std::string> unknown;
  std::vector<Difference> taken = differences_of(saved, now, unknown), refused;
  std::erase_if(taken, [&](const Difference& difference) {
    if (difference.entry->on_change == OnChange::kWarnOfRounding) return false;
    if (std::ranges::find(changes, difference.entry->key) != changes.end()) return false;
    refused.push_back(difference);
    return true;
  });
  if (!refused.empty()) refuse(refused);
  if (!unknown.empty()) {
    log_warn("[resume] not recorded by the version that wrote the checkpoint, so not compared: {}",
             fmt::join(unknown, ", "));
  }
  Json out = now;
  if (const Json* earlier = saved.find(kChanges)) out[kChanges] = *earlier;
  for (const auto& [entry, before, after] : taken) {
    const bool rounds = entry->on_change == OnChange::kWarnOfRounding;
    log_warn("[resume] {}{} changes after step {}: {}, now {}{}", entry->key, entry->also, step,
             text_of(before), text_of(after), rounds ? "; later steps may round differently" : "");
    if (out.find(kChanges) == nullptr) out[kChanges] = Json::array();
    out[kChanges].push_back(Json::Object{
        {"after_step", step}, {"option", entry->key}, {"before", before}, {"now", after}});
  }
  return out;
}

}  // namespace tracestep
