#include "train/whole_tensors.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/collective_sizes.h"

namespace tracestep {
namespace {

// The part of rank `rank` of a tensor, padded with zeros.
HostTensor part_of(const TensorView& whole, int ranks, int rank) {
  const std::int64_t count = whole.shape.product();
  const OwnPart own = own_part_of(count, ranks, rank);
  HostTensor out = HostTensor::zeros(whole.dtype, {part_count(count, ranks)});
  const std::size_t size = size_of(whole.dtype);
  const auto bytes = whole.bytes.subspan(static_cast<std::size_t>(own.first) * size,
                                         static_cast<std::size_t>(own.count) * size);
  std::ranges::copy(bytes, out.bytes.begin());
  return out;
}

// Device memory for a while.
class Scratch {
 public:
  Scratch(Device& device, const Type& type)
      : device_(device),
        ref_{.data = device.allocator().allocate(type.bytes(), {}),
             .dtype = type.dtype,
             .shape = type.shape,
             .strides = contiguous_strides(type.shape)} {}
  ~Scratch() { device_.allocator().free(ref_.data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const TensorRef& ref() const { return ref_; }

 private:
  Device& device_;
  const TensorRef ref_;
};

}  // namespace

WholeTensors::WholeTensors(std::vector<Store*> stores, std::map<std::string, Shape> parameters,
                           Communicator* group)
    : stores_(std::move(stores)),
      parameters_(parameters.begin(), parameters.end()),
      group_(group) {}

int WholeTensors::ranks() const {
  return group_ == nullptr ? 1 : group_->ranks();
}

bool WholeTensors::has_parts() const {
  for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    if (std::ranges::any_of(names(kind), [&](const auto& name) { return is_part(name); })) {
      return true;
    }
  }
  return false;
}

// A part is a vector of part_count() elements. The name of a state ends with its parameter's name.
Type WholeTensors::type(std::string_view name) const {
  const Type& held = first().at(name).type;
  for (std::string_view rest = name;;) {
    const auto found = parameters_.find(rest);
    if (found != parameters_.end()) {
      const Shape part{part_count(found->second.product(), ranks())};
      return held.shape == part ? Type{held.dtype, found->second} : held;
    }
    const std::size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return held;
    rest.remove_prefix(dot + 1);
  }
}

void WholeTensors::set(std::string_view name, const TensorView& whole) const {
  if (!is_part(name)) {
    for (Store* store : stores_) store->set(name, whole);
    return;
  }
  if (Type{whole.dtype, whole.shape} != type(name)) {
    fail_usage(std::string(name), "it is {}, and cannot be {}", type(name).str(),
               Type{whole.dtype, whole.shape}.str());
  }
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    stores_[i]->set(name, part_of(whole, ranks(), group_->rank() + static_cast<int>(i)));
  }
}

HostTensor WholeTensors::get(std::string_view name) const {
  if (!is_part(name)) return first().get(name);
  if (group_->processes() != nullptr) return gathered(name);
  const Type whole = type(name);
  HostTensor out = HostTensor::zeros(whole.dtype, whole.shape);
  auto end = out.bytes.begin();
  for (Store* store : stores_) {
    const HostTensor part = store->get(name);
    const auto left = static_cast<std::size_t>(out.bytes.end() - end);
    end = std::copy_n(part.bytes.begin(), std::min(part.bytes.size(), left), end);
  }
  return out;
}

HostTensor WholeTensors::gathered(std::string_view name) const {
  Device& device = first().device();
  const Store::Entry& entry = first().at(name);
  const Type whole = type(name);
  const Scratch place(device, whole);
  group_->all_gather({.data = entry.data,
                      .dtype = entry.type.dtype,
                      .shape = entry.type.shape,
                      .strides = contiguous_strides(entry.type.shape)},
                     place.ref());
  device.synchronize();
  HostTensor out = HostTensor::zeros(whole.dtype, whole.shape);
  device.copy_out(out.bytes.data(), place.ref().data, whole.bytes());
  return out;
}

}  // namespace tracestep
