#include "spec/protocol.h"

namespace tracestep {
namespace {

constexpr int kMostSteps = 1'000'000;

std::vector<ProtocolField> all_protocol_fields() {
  FieldRows<Protocol> rows;
  const auto row = [](const char* name, const char* help) {
    return ProtocolField{
        .name = name, .role = FieldRole::kProtocol, .show = FieldShow::kKey, .help = help};
  };
  const auto samples_by_noise = [](const Protocol& p) { return p.max_noise_percent > 0; };
  rows.integer(row("warmup", "steps before the clock counts"), 0, kMostSteps,
               in(&Protocol::warmup));
  rows.integer(row("steps", "timed steps, one sample each"), 1, kMostSteps, in(&Protocol::steps));
  rows.integer(
          row("part_steps",
              "also time forward, backward and optimizer each alone, in so many separate steps "
              "that wait for the device between them"),
          0, kMostSteps, in(&Protocol::part_steps))
      .applies = [](const Protocol& p) { return p.part_steps > 0; };
  ProtocolField noise = row("max_noise_percent",
                            "percent: time steps until half the 95 % interval of the median is "
                            "below it, " TRACESTEP_OPTION(steps) " at least");
  noise.flag = "--max-noise";
  rows.real(std::move(noise), 0.001, 1e9, in(&Protocol::max_noise_percent)).applies =
      samples_by_noise;
  rows.integer(row("max_steps",
                   "with " TRACESTEP_OPTION(
                       max_noise) ", the most timed steps; 100 times " TRACESTEP_OPTION(steps)),
               1, kMostSteps, in(&Protocol::max_steps))
      .applies = samples_by_noise;
  rows.real(row("max_seconds",
                "with " TRACESTEP_OPTION(max_noise) ", the most seconds in timed steps"),
            0.001, 1e6, in(&Protocol::max_seconds))
      .applies = samples_by_noise;
  return rows.take();
}

}  // namespace

std::span<const ProtocolField> protocol_fields() {
  static const std::vector<ProtocolField> all = all_protocol_fields();
  return all;
}

void add_key(const Protocol& protocol, Json& key) {
  Protocol effective = protocol;
  effective.max_steps = protocol.most_steps();
  for (const ProtocolField& field : protocol_fields()) {
    if (!field.applies || field.applies(protocol)) key[field.name] = field.value(effective);
  }
}

}  // namespace tracestep
