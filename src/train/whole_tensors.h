// The weights and states of a training as one rank alone would hold them, also where each rank
// holds only its part of some; and what model_store.h does with a store, for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/config.h"
#include "passes/parallel.h"
#include "runtime/communicator.h"
#include "runtime/store.h"
#include "train/not_finite.h"
#include "train/safetensors.h"

namespace tracestep {

class WholeTensors {
 public:
  // Of one rank, which holds everything.
  explicit WholeTensors(Store& store) : stores_{&store} {}
  // `stores`: of the ranks of this process, in their order. `parameters`: the shape of every whole
  // parameter. `choice`: how they are divided. `group`: the first one's end.
  WholeTensors(std::vector<Store*> stores, std::map<std::string, Shape> parameters,
               const Parallel& choice, Communicator* group);

  std::vector<std::string> names(LeafKind kind) const { return first().names(kind); }
  bool has(std::string_view name) const { return first().find(name) != nullptr; }
  bool is_part(std::string_view name) const { return first().at(name).type != type(name); }
  bool has_parts() const;
  bool computes() const { return first().device().computes(); }
  // Of the whole tensor.
  Type type(std::string_view name) const;

  // Every rank takes its part, or all of it.
  void set(std::string_view name, const TensorView& whole) const;
  // On the host. Where the ranks are processes and hold parts, all of them must ask for the same
  // tensor at the same time; the parts are put together in device memory.
  HostTensor get(std::string_view name) const;

 private:
  // How a rank holds a tensor. First the ranks of a replica divide it along an axis, which makes it
  // their own tensor; of that, replicas may hold their parts, which are vectors.
  struct Held {
    Type whole;
    Shape own;
    int axis = 0;
    bool is_part = false;
  };

  Store& first() const { return *stores_.front(); }
  Held held(std::string_view name) const;
  HostTensor part_of(const TensorView& whole, const Held& held, int rank) const;
  // The own tensor of the ranks that have place `index` in their replica. All are in this process.
  HostTensor own(std::string_view name, const Held& held, int index) const;
  // From the ranks of other processes too: the own tensors of a replica one after another.
  HostTensor gathered(std::string_view name, const Held& held) const;

  std::vector<Store*> stores_;
  std::map<std::string, Shape, std::less<>> parameters_;
  Parallel choice_;
  Communicator* group_ = nullptr;
};

void load_tensor(const WholeTensors& to, const std::string& name, const TensorView& value);
void initialize_parameters(const WholeTensors& to, std::uint64_t seed);
void initialize_states(const WholeTensors& to);
void load_parameters(const WholeTensors& to, const SafetensorsFile& file);
std::map<std::string, HostTensor> parameters_of(const WholeTensors& from);
std::map<std::string, HostTensor> states_of(const WholeTensors& from, std::string_view prefix);
// Like save_parameters() of a store, for tensors from parameters_of().
std::optional<NotFinite> save_parameters(const std::map<std::string, HostTensor>& values,
                                         const ModelConfig& config,
                                         const std::filesystem::path& path);

}  // namespace tracestep
