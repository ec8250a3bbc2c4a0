// The weights and states of a training as a single rank would hold them, even if each rank holds
// only its part of some. It can do with them what model_store.h does with a store, and save them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/config.h"
#include "run/adapters.h"
#include "run/parallel.h"
#include "runtime/communicator.h"
#include "runtime/store.h"
#include "weights/not_finite.h"
#include "weights/safetensors.h"
#include "weights/saved_tensors.h"
#include "weights/tensor_pieces.h"

namespace tracestep {

class Tokenizer;

class WholeTensors {
 public:
  // The tensors of a single rank, which holds everything.
  explicit WholeTensors(Store& store) : stores_{&store} {}
  // The tensors of several ranks. `stores`: of this process's ranks, in order. `parameters`: shapes
  // of whole weights. `choice`: how ranks divide them. `group`: the first rank's communicator.
  WholeTensors(std::vector<Store*> stores, std::map<std::string, Shape> parameters,
               const Parallel& choice, Communicator* group);

  std::vector<std::string> names(LeafKind kind) const { return first().names(kind); }
  // The names of the weights: parameters, and constants that are frozen weights.
  std::vector<std::string> weights() const;
  bool is_frozen(std::string_view name) const {
    return first().at(name).kind == LeafKind::kConstant;
  }
  bool has(std::string_view name) const { return first().find(name) != nullptr; }
  bool is_part(std::string_view name) const { return first().at(name).type != type(name); }
  bool has_parts() const;
  bool computes() const { return first().device().computes(); }
  // The type of the whole tensor.
  Type type(std::string_view name) const;
  // Returns how the ranks divide a tensor.
  DividedTensor divided(std::string_view name) const { return held(name).tensor; }
  const Parallel& choice() const { return choice_; }
  // The first rank of this process, and the number of ranks in it.
  int first_rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int ranks_here() const { return static_cast<int>(stores_.size()); }
  // All processes, if the ranks are processes; else nullptr.
  Processes* processes() const { return group_ == nullptr ? nullptr : group_->processes(); }

  // Sets a tensor; every rank takes its part, or all of it.
  void set(std::string_view name, const TensorView& whole) const;
  // The whole tensor on the host. Where the ranks are processes and hold parts, all of them must
  // ask for the same tensor at the same time; the parts are put together in device memory.
  HostTensor get(std::string_view name) const;
  // The vector of tensor_pieces.h that `rank`, one of this process, saves of the tensor.
  HostTensor piece(std::string_view name, int rank) const;

 private:
  // What a rank holds of a tensor: its block, or its piece of the block, padded with zeros.
  struct Held {
    DividedTensor tensor;
    bool is_part = false;
  };

  Store& first() const { return *stores_.front(); }
  Held held(std::string_view name) const;
  HostTensor part_of(const TensorView& whole, const Held& held, int rank) const;
  // Block `index` of a tensor whose ranks are all in this process.
  HostTensor block(std::string_view name, const Held& held, int index) const;
  // The tensor, gathered also from ranks of other processes; the blocks of a replica are gathered
  // one after the other.
  HostTensor gathered(std::string_view name, const Held& held) const;

  std::vector<Store*> stores_;
  std::map<std::string, Shape, std::less<>> parameters_;
  Parallel choice_;
  Communicator* group_ = nullptr;
};

void load_tensor(const WholeTensors& to, const std::string& name, const TensorView& value);
void initialize_parameters(const WholeTensors& to, std::uint64_t seed);
// Sets one floating tensor as initialize_parameters() would, and any other to zeros.
void initialize_tensor(const WholeTensors& to, const std::string& name, std::uint64_t seed);
void initialize_states(const WholeTensors& to);
void load_parameters(const WholeTensors& to, const SavedTensors& from);
std::map<std::string, HostTensor> parameters_of(const WholeTensors& from);
// Writes all weights, tensor by tensor. The metadata has the model's sizes, the hash of `tokenizer`
// unless it is nullptr, and the published model from which the weights were trained unless it is
// empty. If a tensor is infinite or NaN, nothing is written, and it is returned. Every process must
// call this; the first one writes. Throws Error{kOutput}.
std::optional<NotFinite> save_parameters(const WholeTensors& from, const ModelConfig& config,
                                         const Tokenizer* tokenizer,
                                         const std::filesystem::path& path,
                                         const std::string& origin = {}, const Adapters& lora = {});

}  // namespace tracestep
