// Sums in narrow formats: where they go wrong and where they stop.
#include <cmath>

#include "base/half.h"
#include "exec/executor.h"
#include "lab/precision/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "ops/functions.h"
#include "session/session.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

float rounded(float x, DType dtype) {
  if (dtype == DType::kBF16) return to_float(to_bf16(x));
  if (dtype == DType::kF16) return to_float(to_f16(x));
  return x;
}

HostTensor scalar_of(DType dtype, float x) {
  HostTensor out = HostTensor::zeros(dtype, {});
  if (dtype == DType::kBF16) {
    out.as<BF16>()[0] = to_bf16(x);
  } else if (dtype == DType::kF16) {
    out.as<F16>()[0] = to_f16(x);
  } else {
    out.as<float>()[0] = x;
  }
  return out;
}

double value_of(const HostTensor& x) {
  if (x.dtype == DType::kBF16) return static_cast<double>(to_float(x.as<BF16>()[0]));
  if (x.dtype == DType::kF16) return static_cast<double>(to_float(x.as<F16>()[0]));
  return static_cast<double>(x.as<float>()[0]);
}

// Returns the distance from x to the next larger number of the format.
double spacing(DType dtype, double x) {
  const auto at = static_cast<float>(x);
  if (dtype == DType::kF32) {
    return static_cast<double>(std::nextafter(at, INFINITY)) - static_cast<double>(at);
  }
  const int mantissa_bits = dtype == DType::kBF16 ? 7 : 10;
  return std::ldexp(1.0, std::ilogb(at) - mantissa_bits);
}

Program addition(const Accumulation& e) {
  ops::register_all();
  Builder b("accumulation");
  const Val sum = b.state("sum", {e.sum_dtype, {}});
  Val term = b.parameter("term", {e.term_dtype, {}});
  if (e.term_dtype != e.sum_dtype) term = ops::cast(term, e.sum_dtype);
  b.update(sum, ops::add(sum, term));
  return b.finish();
}

std::string exact(double x) {
  return fmt::format("{}", x);
}

}  // namespace

std::vector<Accumulation> accumulations() {
  using D = DType;
  return {{"1: f32 + f32", 1000, 0.01, D::kF32, D::kF32},
          {"2: f16 + f16", 1000, 0.01, D::kF16, D::kF16},
          {"3: f32 + f16", 1000, 0.01, D::kF32, D::kF16},
          {"4: f32 + f16, cast first", 1000, 0.01, D::kF32, D::kF16},
          {"5: bf16 + bf16", 1000, 0.01, D::kBF16, D::kBF16},
          {"6: f32 + bf16", 1000, 0.01, D::kF32, D::kBF16},
          {"7: longer, f32 + f32", 10000, 0.001, D::kF32, D::kF32},
          {"7: longer, f16 + f16", 10000, 0.001, D::kF16, D::kF16},
          {"7: longer, bf16 + bf16", 10000, 0.001, D::kBF16, D::kBF16}};
}

Accumulated accumulate(const Accumulation& e) {
  const float term = rounded(static_cast<float>(e.term), e.term_dtype);
  float sum = 0;
  Accumulated out{0, e.count};
  for (std::int64_t i = 0; i < e.count; ++i) {
    const float next = rounded(sum + term, e.sum_dtype);
    if (next == sum) {  // and so for all that follow
      out.stall = i;
      break;
    }
    sum = next;
  }
  out.value = static_cast<double>(sum);
  return out;
}

std::optional<double> accumulate_on(Device& device, const Accumulation& e) {
  if (!device.supports(e.sum_dtype) || !device.supports(e.term_dtype) || !device.computes()) {
    return std::nullopt;
  }
  const RunSpec run{.mode = Mode::kInference};
  Session session(device, run, program_for(addition(e), run, device));
  session.store().set("term", scalar_of(e.term_dtype, static_cast<float>(e.term)));
  for (std::int64_t i = 0; i < e.count; ++i) session.executor().run();
  device.synchronize();
  return value_of(session.store().get("sum"));
}

namespace {

// The result of an experiment on the host, and on a device that has its formats.
struct Sum {
  Accumulation e;
  Accumulated host;
  std::optional<double> device;
};

double stored_term(const Accumulation& e) {
  return static_cast<double>(rounded(static_cast<float>(e.term), e.term_dtype));
}

Fields<Sum> sum_fields() {
  using S = const Sum&;
  return {
      {as_key(text_column("experiment", "", "format of the sum + format of the terms")),
       [](S s) { return s.e.name; }},
      {as_key(col::count.titled("additions")), [](S s) { return s.e.count; }},
      {as_key(text_column("term")), [](S s) { return exact(s.e.term); }},
      {text_column("term_stored", "stored as", "the term in its format"),
       [](S s) { return exact(stored_term(s.e)); }},
      {data_only(real_column("term_value", "", "", 17)), [](S s) { return stored_term(s.e); }},
      {text_column("sum", "", "every digit"), [](S s) { return exact(s.host.value); }},
      {data_only(real_column("value", "", "", 17)), [](S s) { return s.host.value; }},
      {as_exact(col::error),
       [](S s) { return s.host.value - s.e.term * static_cast<double>(s.e.count); }},
      {int_column("stalls_after", "stalls after", "additions that changed the sum"),
       [](S s) { return when(s.host.stall < s.e.count, s.host.stall); }},
      {real_column("spacing", "spacing there", "", -1, "between neighbours of the sum's format"),
       [](S s) { return spacing(s.e.sum_dtype, s.host.value); }}};
}

// The columns of the sum on a device; cells are empty where the device has no such format.
Fields<Sum> device_fields(const Device& device) {
  using S = const Sum&;
  return {{text_column("device_sum", "on " + device.name()),
           [](S s) { return s.device ? Json(exact(*s.device)) : Json(); }},
          {bool_column("same_bits", "same"),
           [](S s) { return s.device ? Json(*s.device == s.host.value) : Json(); }}};
}

}  // namespace

Table accumulation_table(Device* device) {
  std::vector<Sum> sums;
  for (const Accumulation& e : accumulations()) {
    sums.push_back(
        {e, accumulate(e), device == nullptr ? std::nullopt : accumulate_on(*device, e)});
  }
  Fields<Sum> columns = sum_fields();
  if (device != nullptr) columns.add(device_fields(*device));
  Table table = table_of("accumulation", "Sums that should be 10", columns, sums);
  table.notes = {
      "a sum stalls where the term is less than half the spacing: the rounded result is the old "
      "sum, for ever",
      "f32 + f16 overshoots because 0.01 as a float16 is above 0.01, not because of the sum",
      "an op takes operands of one dtype here, so 3 and 4 run as one program, cast then add"};
  return table;
}

}  // namespace tracestep
