#include "backends/cpu_support.h"

#include <map>

#include "base/error.h"
#include "planning/needs.h"

namespace tracestep::cpu_test {
namespace {

Device& device_with(int threads) {
  static std::map<int, std::unique_ptr<Device>> devices;
  auto& slot = devices[threads];
  if (!slot) slot = make_cpu_device({.threads = threads, .guarded = true});
  return *slot;
}

// Device memory that goes back by itself.
class Block {
 public:
  Block(Device& device, std::int64_t bytes)
      : device_(device), data_(device.allocator().allocate(bytes, {.label = "test"})) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (data_ != nullptr) device_.allocator().free(data_);
  }
  void* data() const { return data_; }

 private:
  Device& device_;
  void* data_;
};

}  // namespace

HostTensor floats(DType dtype, const Shape& shape, std::span<const float> values) {
  HostTensor out = HostTensor::zeros(dtype, shape);
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kBF16: out.as<BF16>()[i] = to_bf16(values[i]); break;
      case DType::kF16: out.as<F16>()[i] = to_f16(values[i]); break;
      default: out.as<float>()[i] = values[i]; break;
    }
  }
  return out;
}

HostTensor random_floats(DType dtype, const Shape& shape, unsigned seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.product()));
  std::uint32_t state = seed * 2654435761u + 1u;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return floats(dtype, shape, values);
}

HostTensor integers(const Shape& shape, std::span<const std::int64_t> values) {
  return HostTensor::of(DType::kI64, shape, values);
}

std::vector<double> values_of(const HostTensor& t) {
  std::vector<double> out(static_cast<std::size_t>(t.count()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    switch (t.dtype) {
      case DType::kBF16: out[i] = static_cast<double>(to_float(t.as<BF16>()[i])); break;
      case DType::kF16: out[i] = static_cast<double>(to_float(t.as<F16>()[i])); break;
      case DType::kI64: out[i] = static_cast<double>(t.as<std::int64_t>()[i]); break;
      case DType::kI32: out[i] = static_cast<double>(t.as<std::int32_t>()[i]); break;
      case DType::kU8:
      case DType::kBool: out[i] = static_cast<double>(t.as<std::uint8_t>()[i]); break;
      default: out[i] = static_cast<double>(t.as<float>()[i]); break;
    }
  }
  return out;
}

std::vector<HostTensor> run(std::string_view name, std::vector<Operand> inputs, Attrs attrs,
                            const RunOptions& options) {
  ops::register_all();
  Device& device = device_with(options.threads);
  const OpDef& op = find_op(name);
  Builder builder("test");
  std::vector<Val> leaves;
  for (const Operand& x : inputs) {
    leaves.push_back(
        builder.input("x" + std::to_string(leaves.size()), {x.storage.dtype, x.shape}));
  }
  const std::vector<Val> results = builder.call(op, leaves, std::move(attrs));
  const Program& program = builder.program();
  const Node& node = program.nodes.back();

  std::vector<std::unique_ptr<Block>> blocks;
  const auto block = [&](std::int64_t bytes) {
    blocks.push_back(std::make_unique<Block>(device, bytes));
    return blocks.back()->data();
  };
  std::vector<TensorRef> in, out;
  std::vector<Type> in_types, out_types;
  for (const Operand& x : inputs) {
    const auto bytes = static_cast<std::int64_t>(x.storage.bytes.size());
    auto* data = static_cast<std::byte*>(block(bytes));
    device.copy_in(data, x.storage.bytes.data(), bytes);
    const DType dtype = x.storage.dtype;
    in.push_back(
        {data + x.offset * static_cast<std::int64_t>(size_of(dtype)), dtype, x.shape, x.strides});
    in_types.push_back({dtype, x.shape});
    TRACESTEP_CHECK(
        !op.accepts || op.accepts(static_cast<int>(in.size()) - 1, in_types.back(), x.strides),
        "{} does not take these strides", name);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Type& type = results[i].type();
    const int donor = i < options.donated.size() ? options.donated[i] : -1;
    void* data = donor >= 0 ? in[static_cast<std::size_t>(donor)].data : block(type.bytes());
    out.push_back({data, type.dtype, type.shape, contiguous_strides(type.shape)});
    out_types.push_back(type);
  }
  const OpCall call{op, node.attrs, in_types, out_types};
  const std::int64_t bytes = workspace_bytes(call, device.traits());
  const std::span workspace(static_cast<std::byte*>(block(bytes)), static_cast<std::size_t>(bytes));
  prepare_at(device, op, node.attrs, in, out, workspace).launch({device.stream()});

  std::vector<HostTensor> host;
  for (const TensorRef& y : out) {
    host.push_back(HostTensor::zeros(y.dtype, y.shape));
    device.copy_out(host.back().bytes.data(), y.data,
                    static_cast<std::int64_t>(host.back().bytes.size()));
  }
  return host;
}

}  // namespace tracestep::cpu_test
