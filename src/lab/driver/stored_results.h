// Lists the members of results that the file of finished cells keeps (lab/measure/stored.h). Each
// list unpacks its struct, so code with a new member does not compile until the member is listed
// here. Specifications are left out because the request has them, and programs because they follow
// from it.
#pragma once

#include "lab/attention/run.h"
#include "lab/comm/collectives.h"
#include "lab/compile/run.h"
#include "lab/measure/stored.h"
#include "lab/memory/run.h"
#include "lab/op/op.h"
#include "lab/precision/tables.h"
#include "lab/profile/run.h"
#include "lab/time/cell.h"
#include "record/activity.h"

namespace tracestep {

inline auto stored_members(Lack& s) {
  return std::tie(s.is_on_host, s.is_foreseen);
}
inline auto stored_members(BatchShape& s) {
  return std::tie(s.batch, s.context);
}
inline auto stored_members(HostFacts& s) {
  auto& [load, runnable, governor, low, high, busy, stolen, own, at] = s;
  return std::tie(load, runnable, governor, low, high, busy, stolen, own, at);
}
inline auto stored_members(HostAround& s) {
  return std::tie(s.before, s.after);
}
inline auto stored_members(DeviceFacts& s) {
  auto& [sm, memory, power, limit, energy, degrees, used, processes, power_ns, heat_ns, all, slow] =
      s;
  return std::tie(sm, memory, power, limit, energy, degrees, used, processes, power_ns, heat_ns,
                  all, slow);
}
inline auto stored_members(Span& s) {
  return std::tie(s.node, s.start_ns, s.end_ns);
}
inline auto stored_members(MemoryEvent& s) {
  auto& [action, category, node, address, requested, rounded, time, live] = s;
  return std::tie(action, category, node, address, requested, rounded, time, live);
}
inline auto stored_members(StepParts& s) {
  return std::tie(s.forward_ms, s.backward_ms, s.optimizer_ms);
}
inline auto stored_members(RecordedStep& s) {
  return std::tie(s.span_ns, s.wall_ns, s.spans, s.interrupted_ms);
}

// Returns the stored members: not the allocator's events, which no table of several cells reads.
inline auto stored_members(CellResult& s) {
  auto& [spec, device, status, detail, lack, facts_before, facts_after, host, choices, parameters,
         samples, warmup, issue_samples, span_samples, visits, stopped_by, faults, profiled, wall,
         issue, device_span, device_busy, communication, exposed, instrumented, compile,
         recorded_busy, recorded, interrupted, recorded_by, parts, peak, predicted_peak,
         ranks_right, host_bytes, arena, least_arena, allocations, untracked, outside, saved, flops,
         launches, captured, kernels, roof, roof_others, is_asynchronous, computes, loss, program,
         traits, spans, span_ns, memory_events] = s;
  return std::tie(device, status, detail, lack, facts_before, facts_after, host, choices,
                  parameters, samples, warmup, issue_samples, span_samples, visits, stopped_by,
                  faults, profiled, wall, issue, device_span, device_busy, communication, exposed,
                  instrumented, compile, recorded_busy, recorded, interrupted, recorded_by, parts,
                  peak, predicted_peak, ranks_right, host_bytes, arena, least_arena, allocations,
                  untracked, outside, saved, flops, launches, captured, kernels, roof, roof_others,
                  is_asynchronous, computes, loss, spans, span_ns);
}
inline auto stored_members(StartTimes& s) {
  return std::tie(s.first_ms, s.second_ms);
}
inline auto stored_members(StepError& s) {
  return std::tie(s.layers, s.loss, s.logits, s.gradients);
}

inline auto stored_members(CollectiveTimes& s) {
  auto& [spec, status, detail, are_processes, received, samples] = s;
  return std::tie(status, detail, are_processes, received, samples);
}

inline auto stored_members(PartTimes& s) {
  auto& [samples, warmup, recorded, busy, flops, launches] = s;
  return std::tie(samples, warmup, recorded, busy, flops, launches);
}
inline auto stored_members(PartsResult& s) {
  auto& [device, status, detail, is_asynchronous, computes, visits, forward, backward, whole,
         before_backward, predicted_before_backward, peak, predicted_peak, facts_before,
         facts_after, host, roof, roof_others] = s;
  return std::tie(device, status, detail, is_asynchronous, computes, visits, forward, backward,
                  whole, before_backward, predicted_before_backward, peak, predicted_peak,
                  facts_before, facts_after, host, roof, roof_others);
}
inline auto stored_members(AttentionResult& s) {
  return std::tuple_cat(stored_members(static_cast<PartsResult&>(s)), std::tie(s.saved_bytes));
}

inline auto stored_members(Ceilings& s) {
  auto& [bandwidth, arithmetic, products, how, others] = s;
  return std::tie(bandwidth, arithmetic, products, how, others);
}
inline auto stored_members(PlainTimes& s) {
  auto& [wall, issue, span, samples, warmup, host] = s;
  return std::tie(wall, issue, span, samples, warmup, host);
}
inline auto stored_members(ProfiledLaunch& s) {
  auto& [step, node, name, activity, start, end] = s;
  return std::tie(step, node, name, activity, start, end);
}
inline auto stored_members(ProfiledStep& s) {
  return std::tie(s.start_ns, s.issued_ns, s.end_ns, s.first_ns, s.last_ns);
}
inline auto stored_members(Activity& s) {
  auto& [kind, node, name, start, end, call, graph_node, device, context, stream, bytes, grid,
         block, registers, shared] = s;
  return std::tie(kind, node, name, start, end, call, graph_node, device, context, stream, bytes,
                  grid, block, registers, shared);
}
inline auto stored_members(ApiCall& s) {
  auto& [name, start, end, correlation, thread] = s;
  return std::tie(name, start, end, correlation, thread);
}
inline auto stored_members(ActivityTrace& s) {
  auto& [names, activities, calls, dropped] = s;
  return std::tie(names, activities, calls, dropped);
}
inline auto stored_members(Turn& s) {
  auto& [lane, wait, until, opens_batch, closes_batch] = s;
  return std::tie(lane, wait, until, opens_batch, closes_batch);
}
inline auto stored_members(Profile& s) {
  auto& [spec, device, is_asynchronous, source, problem, status, detail, lack, program, turns,
         graph_kernels, names, steps, launches, trace, memory_events, plain] = s;
  return std::tie(device, is_asynchronous, source, problem, status, detail, lack, turns,
                  graph_kernels, names, steps, launches, trace, memory_events, plain);
}

inline auto stored_members(Holding& s) {
  auto& [buffer, alloc, free, requested, rounded] = s;
  return std::tie(buffer, alloc, free, requested, rounded);
}
inline auto stored_members(Moment& s) {
  auto& [node, event, measured, predicted, time] = s;
  return std::tie(node, event, measured, predicted, time);
}
// Returns the stored members: not the state at running out of memory, which refers to blocks.
inline auto stored_members(MemoryRun& s) {
  auto& [spec, device, status, detail, measured, computes, program, recompute_note, traits,
         buffer_plan, map, predicted_peak, plan, parameters, events, leaf_at, step_begin,
         step_begin_ns, step_end_ns, clock_to_unix, peak, peak_reserved, host_bytes, holdings,
         moments, node_ns, oom, host, step_ms, recorded_step_ms, event_ns] = s;
  return std::tie(device, status, detail, measured, computes, predicted_peak, parameters, events,
                  leaf_at, step_begin, step_begin_ns, step_end_ns, clock_to_unix, peak,
                  peak_reserved, host_bytes, holdings, moments, node_ns, host, step_ms,
                  recorded_step_ms, event_ns);
}

}  // namespace tracestep
