#include "train/run_checkpoints.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/log.h"
#include "passes/form_passes.h"
#include "passes/loss_scaling.h"
#include "passes/optimizer.h"
#include "runtime/processes.h"
#include "runtime/rank_error.h"
#include "weights/family_files.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

constexpr const char* kValidationLoss = "validation_loss";

std::uint64_t number_of(const std::string& checksum) {
  return std::stoull(checksum, nullptr, 16);
}

// True for states that checkpoints hold: not for accumulated gradients, made anew in every step.
bool is_saved(std::string_view state) {
  return is_optimizer_state(state) || state.starts_with(kLossScale) || state == kLargestMagnitudes;
}

// The names of the tensors to save. kParameter: all weights, also those that are not trained.
std::vector<std::string> saved_names(const WholeTensors& from, LeafKind kind) {
  if (kind == LeafKind::kParameter) return from.weights();
  std::vector<std::string> names = from.names(kind);
  std::erase_if(names, [](const std::string& name) { return !is_saved(name); });
  return names;
}

TensorsToSave whole_tensors(const WholeTensors& from, LeafKind kind) {
  TensorsToSave out{.types = {},
                    .get = [&from](const std::string& name) { return from.get(name); }};
  for (const std::string& name : saved_names(from, kind)) out.types[name] = from.type(name);
  return out;
}

SavedTensors::Table table_of(const WholeTensors& from, LeafKind kind) {
  SavedTensors::Table out;
  for (const std::string& name : saved_names(from, kind)) out[name] = from.divided(name);
  return out;
}

TensorsToSave pieces_of(const WholeTensors& from, int rank) {
  TensorsToSave out{.types = {}, .get = [&from, rank](const std::string& name) {
                      return from.piece(name, rank);
                    }};
  for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    for (const std::string& name : saved_names(from, kind)) {
      const DividedTensor tensor = from.divided(name);
      const std::int64_t count = piece_of(tensor, from.choice(), rank).count;
      if (count > 0) out.types[name] = {tensor.whole.dtype, {count}};
    }
  }
  return out;
}

// How writing the shards of this process went; after agree_on(), of all processes.
struct Outcome {
  std::vector<FileFacts> facts;  // by rank
  std::optional<NotFinite> not_finite = {};
  std::exception_ptr failure = {};
  bool is_good = true;
};

RankError of_rank(int rank, const Error& error) {
  return {rank, error.message(), error.hint(), error.code()};
}

// Writes this process's shards into what open() returns; keeps errors, to throw after agree_on().
template <class Open>
Outcome write_own_shards(const Open& open, const WholeTensors& from) {
  Outcome out;
  for (int i = 0; i < from.ranks_here() && out.is_good; ++i) {
    const int rank = from.first_rank() + i;
    try {
      const Directory inside = open();
      out.not_finite = write_shard(inside, rank, from.choice().ranks, pieces_of(from, rank),
                                   out.facts.emplace_back());
    } catch (const Error& error) {
      out.failure = std::make_exception_ptr(of_rank(rank, error));
    }
    if (out.not_finite) out.not_finite->what += fmt::format(" (piece of rank {})", rank);
    out.is_good = !out.not_finite && !out.failure;
  }
  return out;
}

// Tells the other processes how writing the shards went, and sets `out` to the result of all.
void agree_on(Outcome& out, Processes* processes) {
  if (processes == nullptr) return;
  const auto said = processes->exchange(out.is_good ? 1 : 0);
  out.is_good = std::ranges::count(said, 0u) == 0;
  if (!out.is_good) return;
  const auto bytes = processes->exchange(static_cast<std::uint64_t>(out.facts.front().bytes));
  const auto sums = processes->exchange(number_of(out.facts.front().checksum));
  out.facts.clear();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out.facts.push_back({static_cast<std::int64_t>(bytes[i]), fmt::format("{:016x}", sums[i])});
  }
}

// Calls `find` in the first process alone, and returns its checkpoint in every process.
template <class Find>
std::optional<Checkpoint> same_checkpoint(const std::filesystem::path& folder, const Find& find,
                                          Processes* processes) {
  if (processes == nullptr) return find();
  const bool is_first = processes->rank() == 0;
  std::optional<Checkpoint> out;
  if (is_first) out = find();
  processes->wait_for_first();  // it has verified every byte
  const std::uint64_t known = out ? static_cast<std::uint64_t>(out->step) + 1 : 0;
  const auto next = static_cast<std::int64_t>(processes->exchange(known).front());
  if (!is_first && next > 0) out = load_checkpoint(folder, next - 1);
  check_same(*processes, "the checkpoint that it reads", out ? number_of(out->checksum) : 0);
  return out;
}

}  // namespace

InitialWeights open_initial_weights(const std::filesystem::path& path, bool needs_hash,
                                    Processes* processes) {
  const bool is_published = is_model_folder(path);
  if (!is_published) {
    auto found = same_checkpoint(
        path, [&] { return checkpoint_of_weights(path); }, processes);
    if (found) return {std::move(found->model), found->checksum};
  }
  InitialWeights out{is_published ? open_family_weights(path) : SavedTensors(path)};
  if (needs_hash || processes != nullptr) {
    out.hash =
        is_published ? hash_of_family_weights(path) : hash_file(InputFile(path, "init"_field));
  }
  if (processes != nullptr) check_same(*processes, "the file of weights", number_of(out.hash));
  return out;
}

void check_finite(const SavedTensors& tensors) {
  if (const auto found = find_not_finite(tensors)) {
    throw Error(ErrorCode::kNotFinite, tensors.path(), found->str(), "train from other weights");
  }
}

RunCheckpoints::RunCheckpoints(const TrainOptions& options, Processes* processes)
    : folder_(options.checkpoint), processes_(processes) {
  if (!are_on()) return;
  const bool is_first = processes_ == nullptr || processes_->rank() == 0;
  if (is_first) {
    writer_.emplace(folder_);
    if (!options.resume) writer_->start_anew(options.overwrite);
  }
  if (!options.resume) return;
  resumed_ = same_checkpoint(
      folder_, [this] { return writer_->load(); }, processes_);
  if (!resumed_) {
    log_info("[resume] there is no checkpoint in {} yet: training starts at step 1",
             folder_.string());
    return;
  }
  for (const std::string& warning : resumed_->warnings) log_warn("[checkpoint] {}", warning);
}

void RunCheckpoints::describe(CheckpointRun run) {
  run_ = std::move(run);
  if (writer_ && resumed_) find_best();
}

std::int64_t RunCheckpoints::restore(const WholeTensors& to) {
  if (writer_) {
    check_finite(resumed_->model);
    check_finite(resumed_->state);
  }
  if (processes_ != nullptr) processes_->wait_for_first();
  load_parameters(to, resumed_->model);
  for (const std::string& name : to.names(LeafKind::kState)) {
    // The checkpoint has no loss scale when its run's precision did not scale the loss: the scale
    // then has its initial value.
    const bool is_new = name.starts_with(kLossScale) && !resumed_->state.has(name);
    // Largest magnitudes of a step with other products are not read: the first step finds its own.
    const bool is_other =
        name == kLargestMagnitudes &&
        (!resumed_->state.has(name) || resumed_->state.type(name) != to.type(name));
    if (is_saved(name) && !is_new && !is_other) {
      load_tensor(to, name, resumed_->state.read(name));
    }
  }
  saved_at_ = resumed_->step;
  resumed_.reset();
  return saved_at_;
}

std::optional<NotFinite> RunCheckpoints::save(std::int64_t step, const WholeTensors& from) {
  if (from.choice().ranks == 1) return save_alone(step, from);
  const auto bad = save_shards(step, from);
  if (!bad) saved(step);
  return bad;
}

void RunCheckpoints::saved(std::int64_t step) {
  saved_at_ = step;
  if (writer_ && best_ && best_->step == step) writer_->keep_best(step);
}

CheckpointRun RunCheckpoints::described(std::int64_t step) const {
  CheckpointRun out = run_;
  if (last_ && last_->step == step) out.meta[kValidationLoss] = last_->loss;
  return out;
}

bool RunCheckpoints::add_validation(const Validated& validation) {
  last_ = validation;
  const bool is_first = processes_ == nullptr || processes_->rank() == 0;
  const bool is_lower = !best_ || validation.loss < best_->loss;
  const bool is_best = holds_in_any(are_on() ? processes_ : nullptr, is_first && is_lower);
  if (is_best) best_ = validation;
  return is_best;
}

// Finds the best checkpoint: the one kept as the best, or the one that is continued, if it is
// better, as its run may have ended before it could name it.
void RunCheckpoints::find_best() {
  const auto take = [this](const Checkpoint& checkpoint) {
    const Json* loss = checkpoint.meta.find(kValidationLoss);
    // Losses of other tokens cannot be compared.
    for (const char* of_tokens : {"text", "validation", "batch", "context"}) {
      const Json *then = checkpoint.meta.find(of_tokens), *now = run_.meta.find(of_tokens);
      if (then != nullptr && now != nullptr && *then != *now) return false;
    }
    if (loss == nullptr || (best_ && loss->as_double() >= best_->loss)) return false;
    best_ = {checkpoint.step, loss->as_double()};
    return true;
  };
  try {
    if (const auto step = writer_->best()) take(load_checkpoint(folder_, *step));
  } catch (const Error& error) {
    log_warn("[checkpoint] the best one is lost: {}", error.text());
  }
  if (take(*resumed_)) writer_->keep_best(resumed_->step);
}

std::optional<NotFinite> RunCheckpoints::save_alone(std::int64_t step, const WholeTensors& from) {
  std::optional<NotFinite> bad;
  writer_->save(step, [&](const Directory& inside) {
    bad = write_checkpoint(inside, step, whole_tensors(from, LeafKind::kParameter),
                           whole_tensors(from, LeafKind::kState), described(step));
    return !bad;
  });
  if (!bad) saved(step);
  return bad;
}

std::optional<NotFinite> RunCheckpoints::save_shards(std::int64_t step, const WholeTensors& from) {
  Outcome out;
  // Processes meet before a shard is written, when the folder exists, and again when one failed and
  // the folder is gone.
  const auto meet = [this] {
    if (processes_ != nullptr) processes_->exchange(0);
  };
  if (writer_) {
    writer_->save(step, [&](const Directory& inside) {
      meet();
      out = write_own_shards([&] { return inside; }, from);
      agree_on(out, processes_);
      if (!out.is_good) return false;
      write_description(inside, step, from.choice(), table_of(from, LeafKind::kParameter),
                        table_of(from, LeafKind::kState), out.facts, described(step));
      return true;
    });
  } else {
    meet();
    out = write_own_shards([&] { return open_unfinished_checkpoint(folder_, step); }, from);
    agree_on(out, processes_);
  }
  if (out.is_good) {
    // The first process may have read an earlier checkpoint, to know whether to remove one.
    if (processes_ != nullptr) processes_->wait_for_first();
    return std::nullopt;
  }
  meet();
  if (out.failure) std::rethrow_exception(out.failure);
  if (out.not_finite) return out.not_finite;
  meet();  // the rank that failed ends all meanwhile
  throw Error(ErrorCode::kFailed, "checkpoint", "another rank could not write its shard");
}

std::string RunCheckpoints::last_finite() const {
  if (!are_on()) return "nothing is saved without option checkpoint";
  if (saved_at_ < 0) return fmt::format("there is no checkpoint in {} yet", folder_.string());
  return fmt::format("the last finite checkpoint is step {} in {}", saved_at_, folder_.string());
}

}  // namespace tracestep
