// Columns that several tables have, each declared once with name, title and description. A table
// that needs another description writes col::bytes("of the whole tensor"), and for another title
// col::bytes.titled("size").
#pragma once

#include "lab/report/columns.h"

namespace tracestep {

using KnownText = KnownColumn<ColumnKind::kText>;
using KnownInt = KnownColumn<ColumnKind::kInt>;
using KnownBytes = KnownColumn<ColumnKind::kBytes>;
using KnownBool = KnownColumn<ColumnKind::kBool>;
using KnownReal = KnownColumn<ColumnKind::kReal>;
using KnownReals = KnownColumn<ColumnKind::kReals>;
using KnownStructure = KnownColumn<ColumnKind::kStructured>;

namespace col {

// Columns of texts.
inline constexpr KnownText a{"a", "A"}, assumes{"assumes"}, attention{"attention"}, b{"b", "B"},
    block{"block"}, bound{"bound"}, category{"category"}, change{"change"}, choice{"choice"},
    class_{"class"}, code{"code"}, command{"command"},
    component{"component", "", "model path, layers added up"}, detail{"detail"}, device{"device"},
    doc{"doc", "meaning"}, dtype{"dtype"}, file{"file"}, flags{"flags"}, form{"form"},
    format{"format"}, formula{"formula"}, id{"id"}, is{"is"}, item{"item"}, kernel{"kernel"},
    kind{"kind"}, label{"label", "", "", "", -1, ColumnRole::kFollows}, level{"level"},
    model{"model"}, module{"module"}, name{"name"}, number{"number"},
    numbers{"numbers", "with numbers"}, op{"op"}, ops{"ops"}, parallel{"parallel"}, part{"part"},
    pass{"pass"}, path{"path"}, phase{"phase"}, precision{"precision"}, quantity{"quantity"},
    question{"question"}, read_by{"read_by", "read by"}, reason{"reason"},
    recorded_by{"recorded_by"}, row{"row"}, saved{"saved"}, settings{"settings"},
    severity{"severity", "", "what it costs besides time"}, shape{"shape"},
    site{"site", "allocated at"}, size{"size"}, source{"source"}, status{"status"}, study{"study"},
    table{"table"}, text{"text"}, throttled{"throttled", "", "what slowed the device down"},
    topic{"topic"}, type{"type"}, unit{"unit"}, value{"value"},
    verdict{"verdict", "", "", "", -1, ColumnRole::kFollows}, what{"what"}, where{"where"},
    why{"why"};

// Columns of whole numbers.
inline constexpr KnownInt batch{"batch"}, blocks{"blocks"}, buffers{"buffers"}, cells{"cells"},
    context{"context"}, copy{"copy", "", "of the same cell, measured several times"},
    count{"count"}, d_ff{"d_ff", "F"}, d_model{"d_model", "C"}, devices{"devices"},
    error_layers{"error_layers", "", "of the model that errors are of"}, event{"event"},
    events{"events"}, flops{"flops", "FLOPs", "", "", -1, ColumnRole::kFollows},
    heads{"heads", "H"}, kernels{"kernels"},
    launches{"launches", "launching nodes", "", "", -1, ColumnRole::kFollows},
    layers{"layers", "L"}, node{"node"},
    parameters{"parameters", "", "", "", -1, ColumnRole::kFollows}, rank{"rank"}, ranks{"ranks"},
    step{"step"}, steps{"steps"}, values{"values"}, vocab{"vocab", "V"}, width{"width"};

// Columns of bytes.
inline constexpr KnownBytes allocated_bytes{"allocated_bytes", "allocated"},
    arena_bytes{"arena_bytes", "arena"}, asked_bytes{"asked_bytes", "asked for"},
    before_backward_bytes{"before_backward_bytes", "before backward"},
    before_bytes{"before_bytes", "before"}, bytes{"bytes"}, device_bytes{"device_bytes"},
    difference_bytes{"difference_bytes", "difference"}, held_bytes{"held_bytes", "before backward"},
    host_bytes{"host_bytes", "in host memory"}, largest_bytes{"largest_bytes", "largest"},
    largest_unused_bytes{"largest_unused_bytes", "in one piece"},
    limit_bytes{"limit_bytes", "limit"}, measured_bytes{"measured_bytes", "measured"},
    missing_bytes{"missing_bytes", "missing"}, needed_bytes{"needed_bytes", "needed"},
    ours_bytes{"ours_bytes", "ours"}, outside_bytes{"outside_bytes", "outside"},
    peak_bytes{"peak_bytes", "peak"}, predicted_bytes{"predicted_bytes", "predicted"},
    predicted_peak_bytes{"predicted_peak_bytes", "predicted peak"},
    reserved_bytes{"reserved_bytes", "reserved"}, saved_bytes{"saved_bytes", "saved"},
    spare_bytes{"spare_bytes", "to spare"}, total_bytes{"total_bytes", "total"},
    unused_at_peak_bytes{"unused_at_peak_bytes", "unused then"},
    unused_bytes{"unused_bytes", "unused"}, weight_bytes{"weight_bytes", "weights"};

// Columns of booleans.
inline constexpr KnownBool causal{"causal"};

// Columns of real numbers; unit and decimals follow the description.
inline constexpr KnownReal backward_ms{"backward_ms", "backward", "", "ms", 2},
    backward_over_forward{"backward_over_forward", "bwd / fwd", "of the medians", "", 2},
    busy_percent{"busy_percent", "busy of wall", "", "%", 1}, calls{"calls", "kernels", "", "", -1},
    error{"error", "error", "", "", 6}, error_percent{"error_percent", "error", "", "%", 1},
    forward_ms{"forward_ms", "forward", "", "ms", 2}, gb_per_s{"gb_per_s", "GB/s", "", "", 1},
    gflops{"gflops", "GFLOP/s", "", "", 1},
    gradient_error{"gradient_error", "gradients", "relative, of the norm of all gradients", "", -1},
    high_ms{"high_ms", "to", "", "ms", -1}, high_percent{"high_percent", "to", "", "%", 1},
    loss{"loss", "loss", "", "", 4},
    loss_error{"loss_error", "loss error", "relative, against float64", "", -1},
    low_ms{"low_ms", "from", "", "ms", -1}, low_percent{"low_percent", "roofline from", "", "%", 1},
    mean_ms{"mean_ms", "step", "", "ms", -1}, measured_ms{"measured_ms", "measured", "", "ms", -1},
    median_ms{"median_ms", "median", "", "ms", 3},
    mfu_percent{"mfu_percent", "MFU", "model FLOPs, of the data sheet's peak", "%", 0},
    model_ms{"model_ms", "", "", "ms", -1}, modelled_ms{"modelled_ms", "roofline", "", "ms", 2},
    ms{"ms", "time", "", "ms", 3}, p{"p", "p", "", "", 3}, percent{"percent", "share", "", "%", 1},
    predicted_ms{"predicted_ms", "predicted time", "of a step", "ms", -1},
    ratio{"ratio", "B / A", "", "", 3}, ratio_high{"ratio_high", "to", "", "", 3},
    ratio_low{"ratio_low", "from", "", "", 3},
    recorded_ms{"recorded_ms", "when recorded", "", "ms", 4},
    roof_others_cores{"roof_others_cores", "", "", "cores", 2},
    roof_percent{"roof_percent", "of roof", "", "%", 1},
    roof_tflops{"roof_tflops", "roof", "", "TFLOP/s", 3}, seconds{"seconds", "", "", "s", 1},
    share_percent{"share_percent", "share", "", "%", 2},
    speedup{"speedup", "against naive", "", "x", 3}, std_ms{"std_ms", "std", "", "ms", 3},
    time_ms{"time_ms", "at", "", "ms", 3}, tokens_per_s{"tokens_per_s", "tokens/s", "", "", 0},
    total_ms{"total_ms", "total", "", "ms", 2},
    validation_loss{"validation_loss", "validation loss", "", "", 4};

// Columns of lists of numbers.
inline constexpr KnownReals samples_ms{"samples_ms"}, warmup_ms{"warmup_ms"};

// Columns of JSON objects.
inline constexpr KnownStructure cell{"cell", "", "all parameters of the row"},
    facts_after{"facts_after"}, facts_before{"facts_before"};

}  // namespace col
}  // namespace tracestep
