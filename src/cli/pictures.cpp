#include "cli/pictures.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/made_folders.h"
#include "base/output_file.h"
#include "cli/child_process.h"
#include "cli/options.h"
#include "cli/processes.h"
#include "lab/pages/first_answer.h"
#include "lab/report/chart/svg.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

// Turns a text into lower-case letters and digits, with single dashes between them.
std::string slug(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (is_plain) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (out.ends_with('-')) out.pop_back();
  return out;
}

// The first column that the chart draws; empty: the kind of chart determines it.
std::string first_drawn(const Chart& chart) {
  for (const char* option : {"values", "y", "list"}) {
    const Json* names = chart.options.find(option);
    if (names != nullptr)
      return names->is_array() ? names->items()[0].as_string() : names->as_string();
  }
  return {};
}

bool has_converter() {
  return run_command("command -v rsvg-convert", {}).status == 0;
}

// Inserts a chunk of text after the picture's header that names this program as its maker.
std::string marked_png(std::string png) {
  constexpr std::size_t kHeaderEnd = 33;
  constexpr std::string_view kChunk("\0\0\0\x12tEXtSoftware\0tracestep\xf4\x91\x74\x8a", 30);
  if (png.size() > kHeaderEnd) png.insert(kHeaderEnd, kChunk);
  return png;
}

// Draws a PNG at twice the size, for dense screens and print. False, with a warning: it failed.
bool write_png(const fs::path& svg) {
  fs::path png = svg;
  png.replace_extension(".png");
  const std::string arguments[] = {"--zoom", "2", "--", svg.string()};
  ProcessResult result = run_command("rsvg-convert", arguments);
  if (result.status != 0) {
    log_warn("pictures: rsvg-convert made no {}: {}", png.string(), last_line(result.err));
    return false;
  }
  write_file(png, marked_png(std::move(result.out)));
  return true;
}

// Draws a chart; empty, with a warning, if that fails, as measurements must not be lost by it.
std::string drawn(const Chart& chart, std::span<const Table> tables) {
  try {
    return draw_chart(chart, tables);
  } catch (const Error& error) {
    log_warn("pictures: {}", error.what());
    return {};
  }
}

}  // namespace

std::string picture_name(const Chart& chart) {
  if (!chart.name.empty()) return chart.name;
  return slug(chart.table.substr(0, chart.table.find('@')) + " " + first_drawn(chart) + " " +
              label_of(chart));
}

void add_pictures(Command& command) {
  const auto has_charts = [](const pages::Page& page) { return !page.charts.empty(); };
  OutputOptions* const output = command.options.output();
  if (output == nullptr ||
      std::ranges::none_of(pages::answer_pages("tracestep." + command.name), has_charts)) {
    return;
  }
  command.options.group("Output");
  command.options.path("--pictures", "DIR", output->pictures,
                       "draw the charts of the result there, as SVG, and as PNG where "
                       "rsvg-convert is installed");
  command.run = [run = command.run, output](std::span<const std::string> arguments) {
    if (processes() != nullptr && processes()->rank() > 0) output->pictures.clear();
    const MadeFolders made(output->pictures);
    if (!output->pictures.empty()) check_writable_folder(output->pictures);
    return run(arguments);
  };
}

void write_pictures(const fs::path& folder, std::span<const Chart> charts,
                    std::span<const Table> tables, Titles titles) {
  const bool makes_png = has_converter();
  int count = 0, pngs = 0;
  for (const Chart& chart : charts) {
    const std::string drawing = drawn(chart, tables);
    if (drawing.empty()) continue;
    std::error_code shown_by_write;  // a part of a run that drew nothing has left no folder
    fs::create_directories(folder, shown_by_write);
    const fs::path svg = folder / (picture_name(chart) + ".svg");
    write_file(svg, as_picture(drawing, titles == Titles::kNone ? "" : chart.title));
    if (makes_png && write_png(svg)) ++pngs;
    ++count;
  }
  if (count == 0) return log_info("there is nothing to draw in {}", folder.string());
  log_info("{} in {}, as SVG{}",
           count == 1 ? "a picture is" : fmt::format("{} pictures are", count), folder.string(),
           !makes_png      ? "; with rsvg-convert (librsvg) they would be PNG too"
           : pngs == count ? " and PNG"
                           : fmt::format("; {} of them as PNG too", pngs));
}

}  // namespace tracestep::cli
