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

  // Allocates the parameters and states of `program` that the store does not hold yet. States are
  // zeroed, except shadows: shadow_name(P) of a parameter P is set to P, rounded, here and by every
  // `set`; programs that update P must update it too. Throws OutOfMemory, and Error{kUsage} when
  // the store holds a name with another type or a program updates P but not its shadow.
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
  // Error{kUsage} when the program updates a parameter but not its shadow.
  void check_shadows(const Program& program) const;
  void copy_in(const Entry& entry, const TensorView& value);
  // Makes the shadow of `parameter`, if it has one, hold `value`.
  void set_shadow(std::string_view parameter, const TensorView& value);

  Device& device_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tracestep
