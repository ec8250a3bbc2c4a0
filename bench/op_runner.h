// One op with dense operands of random values, ready to be called again and again.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/half.h"
#include "base/host_tensor.h"
#include "base/random.h"
#include "ir/builder.h"
#include "planning/needs.h"
#include "runtime/device.h"

namespace tracestep {

class OpRunner {
 public:
  // `donated`: for each result, the operand whose storage it takes, or -1. Integers are small.
  OpRunner(Device& device, std::string_view op, const std::vector<Type>& inputs, Attrs attrs,
           const std::vector<int>& donated)
      : device_(device), builder_("bench") {
    std::vector<Val> leaves;
    for (const Type& type : inputs) {
      leaves.push_back(builder_.input(fmt::format("x{}", leaves.size()), type));
      inputs_.push_back(tensor(type));
      fill(inputs_.back());
    }
    const auto results = builder_.call(find_op(op), leaves, std::move(attrs));
    std::vector<Type> types;
    for (std::size_t i = 0; i < results.size(); ++i) {
      types.push_back(results[i].type());
      const int donor = i < donated.size() ? donated[i] : -1;
      outputs_.push_back(donor >= 0 ? inputs_[static_cast<std::size_t>(donor)]
                                    : tensor(types.back()));
    }
    const Node& node = builder_.program().nodes.back();
    const std::int64_t bytes =
        workspace_bytes({*node.op, node.attrs, inputs, types}, device.traits());
    launch_ =
        prepare_at(device, *node.op, node.attrs, inputs_, outputs_,
                   {static_cast<std::byte*>(allocate(bytes)), static_cast<std::size_t>(bytes)});
    run();
  }
  OpRunner(const OpRunner&) = delete;
  OpRunner& operator=(const OpRunner&) = delete;
  ~OpRunner() {
    device_.synchronize();
    for (void* block : blocks_) device_.allocator().free(block);
  }

  void run() { launch_.launch({device_.stream()}); }

 private:
  void* allocate(std::int64_t bytes) {
    if (bytes == 0) return nullptr;
    blocks_.push_back(device_.allocator().allocate(bytes, {.label = "bench"}));
    return blocks_.back();
  }
  TensorRef tensor(const Type& type) {
    return {allocate(type.bytes()), type.dtype, type.shape, contiguous_strides(type.shape)};
  }
  // The same megabyte of values again and again: in [0.1, 1.1), which suits every op.
  void fill(const TensorRef& x) {
    constexpr std::int64_t kPeriod = std::int64_t{1} << 20;
    const std::int64_t n = std::min(kPeriod, x.count());
    HostTensor host = HostTensor::zeros(x.dtype, {n});
    const CounterRng rng(0, "bench");
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto value = static_cast<float>(0.1 + rng.uniform(static_cast<std::uint64_t>(i)));
      switch (x.dtype) {
        case DType::kF32: host.as<float>()[at] = value; break;
        case DType::kBF16: host.as<BF16>()[at] = to_bf16(value); break;
        case DType::kF16: host.as<F16>()[at] = to_f16(value); break;
        case DType::kI64: host.as<std::int64_t>()[at] = i % 64; break;
        default: host.bytes[at] = std::byte{1}; break;
      }
    }
    const auto size = static_cast<std::int64_t>(size_of(x.dtype));
    for (std::int64_t done = 0; done < x.count(); done += n) {
      device_.copy_in(x.as<std::byte>() + done * size, host.bytes.data(),
                      std::min(n, x.count() - done) * size);
    }
  }

  Device& device_;
  Builder builder_;
  std::vector<TensorRef> inputs_, outputs_;
  std::vector<void*> blocks_;
  PreparedLaunch launch_;
};

}  // namespace tracestep
