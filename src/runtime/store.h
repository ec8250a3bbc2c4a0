// Store: named parameter, state and gradient buffers of one device. Programs find them by name, so
// that training, evaluation, generation and accumulation share the same weights.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep {

class Store {
 public:
  struct Entry {
    Type type;
    LeafKind kind = LeafKind::kParameter;
    Category category = Category::kParameter;
    void* data = nullptr;
  };

  explicit Store(Device& device) : device_(device) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Allocates the parameters and states of `program` that are not there yet (states are zeroed).
  // Throws Error{kUsage} when one is there with another type, OutOfMemory.
  void bind(const Program& program);

  const Entry* find(std::string_view name) const;
  const Entry& at(std::string_view name) const;         // Error{kUsage} when missing
  std::vector<std::string> names(LeafKind kind) const;  // sorted

  // Blocking copies. `set` throws Error{kUsage} when the type differs.
  void set(std::string_view name, const TensorView& value);
  HostTensor get(std::string_view name) const;
  void zero(std::string_view name);

  Device& device() const { return device_; }

 private:
  Device& device_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tracestep
