#include "weights/whole_tensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "ops/collective_sizes.h"
#include "passes/form_passes.h"
#include "passes/parallel_passes.h"
#include "weights/nf4_weights.h"

namespace tracestep {
namespace {

// Returns the elements of part `index` of `parts` equal parts of a tensor, padded with zeros.
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

// A tensor in device memory, which is freed with this object.
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

std::vector<std::string> WholeTensors::weights() const {
  std::vector<std::string> out = names(LeafKind::kParameter);
  for (const std::string& name : names(LeafKind::kConstant)) {
    const bool is_coded = is_part_of_nf4(name) || !weight_of_codes(name).empty();
    const bool is_weight = parameters_.empty() || parameters_.contains(name);
    if (is_coded || (is_weight && is_floating(type(name).dtype))) out.push_back(name);
  }
  return out;
}

bool WholeTensors::has_parts() const {
  for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kConstant, LeafKind::kState}) {
    if (std::ranges::any_of(names(kind), [&](const auto& name) { return is_part(name); })) {
      return true;
    }
  }
  return false;
}

// Returns how ranks hold a tensor: a state as the parameter in its name, NF4 parts as the weight.
WholeTensors::Held WholeTensors::held(std::string_view name) const {
  const Type& here = first().at(name).type;
  if (const std::string_view weight = weight_of_part(name); !weight.empty()) {
    const bool is_one = name.ends_with(kNf4Offset) || !choice_.is_divided();
    const auto axis = is_one ? std::nullopt : split_axis(weight);
    if (!axis) return {{here}, false};
    DividedTensor tensor{here, here.shape.rank() == 1 ? 0 : *axis};
    tensor.whole.shape[*tensor.axis] *= choice_.tensor;
    return {tensor, false};
  }
  for (std::string_view rest = name;;) {
    if (const auto found = parameters_.find(rest); found != parameters_.end()) {
      DividedTensor tensor{{here.dtype, found->second}};
      if (choice_.is_divided()) tensor.axis = split_axis(rest);
      const Shape block = block_type(tensor, choice_).shape;
      const Shape part{part_count(block.product(), choice_.replicas())};
      if (here.shape == block) return {tensor, false};
      return here.shape == part ? Held{tensor, true} : Held{{here}, false};
    }
    const std::size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return {{here}, false};
    rest.remove_prefix(dot + 1);
  }
}

Type WholeTensors::type(std::string_view name) const {
  return held(name).tensor.whole;
}

HostTensor WholeTensors::piece(std::string_view name, int rank) const {
  const Held how = held(name);
  const OwnPart own = piece_of(how.tensor, choice_, rank);
  const Store& store = *stores_[static_cast<std::size_t>(rank - first_rank())];
  const Store::Entry& entry = store.at(name);
  HostTensor out = HostTensor::zeros(entry.type.dtype, {own.count});
  const auto before = how.is_part ? 0 : own.first * static_cast<std::int64_t>(size_of(out.dtype));
  if (!out.bytes.empty()) {
    store.device().copy_out(out.bytes.data(), static_cast<const std::byte*>(entry.data) + before,
                            static_cast<std::int64_t>(out.bytes.size()));
  }
  return out;
}

HostTensor WholeTensors::part_of(const TensorView& whole, const Held& held, int rank) const {
  const int index =
      held.tensor.axis ? static_cast<int>(choice_.within_replica().index_of(rank)) : 0;
  HostTensor block = block_of(whole, held.tensor, choice_, index);
  if (!held.is_part) return block;
  return vector_of(block, choice_.replicas(), choice_.across_replicas().index_of(rank));
}

void WholeTensors::set(std::string_view name, const TensorView& whole) const {
  if (!is_part(name)) {
    for (Store* store : stores_) store->set(name, whole);
    return;
  }
  const Held how = held(name);
  if (Type{whole.dtype, whole.shape} != how.tensor.whole) {
    fail_usage(std::string(name), "it is {}, and cannot be {}", how.tensor.whole.str(),
               Type{whole.dtype, whole.shape}.str());
  }
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    stores_[i]->set(name, part_of(whole, how, first_rank() + static_cast<int>(i)));
  }
}

HostTensor WholeTensors::get(std::string_view name) const {
  if (!is_part(name)) return first().get(name);
  const Held how = held(name);
  const bool is_here = processes() == nullptr;
  const HostTensor all = is_here ? HostTensor() : gathered(name, how);
  const auto size = static_cast<std::size_t>(block_type(how.tensor, choice_).bytes());
  HostTensor out = HostTensor::zeros(how.tensor.whole.dtype, how.tensor.whole.shape);
  for (int index = 0; index < block_count(how.tensor, choice_); ++index) {
    const HostTensor one = is_here ? block(name, how, index) : HostTensor();
    const std::span<const std::byte> from =
        is_here ? one.bytes
                : std::span(all.bytes).subspan(static_cast<std::size_t>(index) * size, size);
    put_block(out, from, how.tensor, choice_, index);
  }
  return out;
}

HostTensor WholeTensors::block(std::string_view name, const Held& held, int index) const {
  const auto place = static_cast<std::size_t>(index),
             step = static_cast<std::size_t>(choice_.tensor);
  if (!held.is_part) return stores_[place]->get(name);
  HostTensor out =
      HostTensor::zeros(held.tensor.whole.dtype, block_type(held.tensor, choice_).shape);
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
  const Type& all = held.tensor.whole;
  std::optional<Scratch> block, whole;  // one at least: whole tensors are not gathered
  if (held.is_part) {
    block.emplace(device, block_type(held.tensor, choice_));
    group_->among(choice_.across_replicas()).all_gather(mine, block->ref());
  }
  if (held.tensor.axis) {
    whole.emplace(device, all);
    group_->among(choice_.within_replica()).all_gather(block ? block->ref() : mine, whole->ref());
  }
  device.synchronize();
  HostTensor out = HostTensor::zeros(all.dtype, all.shape);
  device.copy_out(out.bytes.data(), (whole ? *whole : *block).ref().data, all.bytes());
  return out;
}

}  // namespace tracestep
