#include "train/whole_tensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "ops/collective_sizes.h"
#include "passes/split.h"

namespace tracestep {
namespace {

// The part of one of `parts` of a tensor, padded with zeros.
HostTensor vector_of(const HostTensor& whole, std::int64_t parts, std::int64_t index) {
  const OwnPart own = own_part_of(whole.count(), parts, index);
  HostTensor out = HostTensor::zeros(whole.dtype, {part_count(whole.count(), parts)});
  const std::size_t size = size_of(whole.dtype);
  const auto bytes = std::span(whole.bytes)
                         .subspan(static_cast<std::size_t>(own.first) * size,
                                  static_cast<std::size_t>(own.count) * size);
  std::ranges::copy(bytes, out.bytes.begin());
  return out;
}

// Where tensors lie that divide a whole one along an axis: `count` blocks of `bytes` in each of
// them, and in the whole a block of every one of `ranks` in turn.
struct Blocks {
  std::size_t count, bytes, ranks;

  Blocks(const Type& whole, int axis, int ranks_)
      : count(1), ranks(static_cast<std::size_t>(ranks_)) {
    for (int i = 0; i < axis; ++i) count *= static_cast<std::size_t>(whole.shape[i]);
    const auto all = static_cast<std::size_t>(whole.bytes());
    bytes = all == 0 ? 0 : all / count / ranks;
  }
  std::size_t in_whole(std::size_t block, std::size_t index) const {
    return (block * ranks + index) * bytes;
  }
};

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
                           const Parallel& choice, Communicator* group)
    : stores_(std::move(stores)),
      parameters_(parameters.begin(), parameters.end()),
      choice_(choice),
      group_(group) {}

bool WholeTensors::has_parts() const {
  for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    if (std::ranges::any_of(names(kind), [&](const auto& name) { return is_part(name); })) {
      return true;
    }
  }
  return false;
}

// The name of a state ends with its parameter's name.
WholeTensors::Held WholeTensors::held(std::string_view name) const {
  const Type& here = first().at(name).type;
  for (std::string_view rest = name;;) {
    if (const auto found = parameters_.find(rest); found != parameters_.end()) {
      Held out{{here.dtype, found->second}, found->second};
      if (const auto axis = split_axis(rest); axis && choice_.is_divided()) {
        out.axis = *axis;
        out.own[*axis] /= choice_.tensor;
      }
      const Shape part{part_count(out.own.product(), choice_.replicas())};
      out.is_part = here.shape == part && here.shape != out.own;
      return here.shape == part || here.shape == out.own ? out : Held{here, here.shape};
    }
    const std::size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return {here, here.shape};
    rest.remove_prefix(dot + 1);
  }
}

Type WholeTensors::type(std::string_view name) const {
  return held(name).whole;
}

HostTensor WholeTensors::part_of(const TensorView& whole, const Held& held, int rank) const {
  HostTensor own = HostTensor::zeros(whole.dtype, held.own);
  const Blocks blocks(held.whole, held.axis, held.own == whole.shape ? 1 : choice_.tensor);
  const auto index =
      static_cast<std::size_t>(blocks.ranks == 1 ? 0 : choice_.within_replica().index_of(rank));
  for (std::size_t i = 0; i < blocks.count; ++i) {
    const auto from = whole.bytes.subspan(blocks.in_whole(i, index), blocks.bytes);
    std::ranges::copy(from, own.bytes.begin() + static_cast<std::ptrdiff_t>(i * blocks.bytes));
  }
  if (!held.is_part) return own;
  return vector_of(own, choice_.replicas(), choice_.across_replicas().index_of(rank));
}

void WholeTensors::set(std::string_view name, const TensorView& whole) const {
  if (!is_part(name)) {
    for (Store* store : stores_) store->set(name, whole);
    return;
  }
  const Held how = held(name);
  if (Type{whole.dtype, whole.shape} != how.whole) {
    fail_usage(std::string(name), "it is {}, and cannot be {}", how.whole.str(),
               Type{whole.dtype, whole.shape}.str());
  }
  const int first_rank = group_ == nullptr ? 0 : group_->rank();
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    stores_[i]->set(name, part_of(whole, how, first_rank + static_cast<int>(i)));
  }
}

HostTensor WholeTensors::get(std::string_view name) const {
  if (!is_part(name)) return first().get(name);
  const Held how = held(name);
  const Blocks blocks(how.whole, how.axis, how.own == how.whole.shape ? 1 : choice_.tensor);
  const bool is_here = group_->processes() == nullptr;
  const HostTensor all = is_here ? HostTensor() : gathered(name, how);
  HostTensor out = HostTensor::zeros(how.whole.dtype, how.whole.shape);
  for (std::size_t index = 0; index < blocks.ranks; ++index) {
    const HostTensor one = is_here ? own(name, how, static_cast<int>(index)) : HostTensor();
    const std::byte* from =
        is_here ? one.bytes.data() : all.bytes.data() + index * blocks.count * blocks.bytes;
    for (std::size_t i = 0; i < blocks.count; ++i) {
      std::copy_n(from + i * blocks.bytes, blocks.bytes,
                  out.bytes.data() + blocks.in_whole(i, index));
    }
  }
  return out;
}

HostTensor WholeTensors::own(std::string_view name, const Held& held, int index) const {
  const auto place = static_cast<std::size_t>(index),
             step = static_cast<std::size_t>(choice_.tensor);
  if (!held.is_part) return stores_[place]->get(name);
  HostTensor out = HostTensor::zeros(held.whole.dtype, held.own);
  auto end = out.bytes.begin();
  for (std::size_t rank = place; rank < stores_.size(); rank += step) {
    const HostTensor part = stores_[rank]->get(name);
    const auto left = static_cast<std::size_t>(out.bytes.end() - end);
    end = std::copy_n(part.bytes.begin(), std::min(part.bytes.size(), left), end);
  }
  return out;
}

HostTensor WholeTensors::gathered(std::string_view name, const Held& held) const {
  Device& device = first().device();
  const Store::Entry& entry = first().at(name);
  const TensorRef mine{.data = entry.data,
                       .dtype = entry.type.dtype,
                       .shape = entry.type.shape,
                       .strides = contiguous_strides(entry.type.shape)};
  std::optional<Scratch> own, whole;  // one at least: whole tensors are not gathered
  if (held.is_part) {
    own.emplace(device, Type{held.whole.dtype, held.own});
    group_->among(choice_.across_replicas()).all_gather(mine, own->ref());
  }
  if (held.own != held.whole.shape) {
    whole.emplace(device, held.whole);
    group_->among(choice_.within_replica()).all_gather(own ? own->ref() : mine, whole->ref());
  }
  device.synchronize();
  HostTensor out = HostTensor::zeros(held.whole.dtype, held.whole.shape);
  device.copy_out(out.bytes.data(), (whole ? *whole : *own).ref().data, held.whole.bytes());
  return out;
}

}  // namespace tracestep
