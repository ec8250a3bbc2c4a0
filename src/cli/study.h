// The parts of `tracestep study`: what is run, and the report that is written of it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/options.h"
#include "lab/measure/cell.h"
#include "train/loop.h"

namespace tracestep::cli {

// What training left behind.
struct StudyTraining {
  ModelConfig model;
  BatchShape shape;
  std::vector<std::string> texts;  // the paths that were read
  std::int64_t file_count = 0, text_bytes = 0;
  TrainResult result;
  double seconds = 0.0;
  std::string sample;  // text from the trained model
};

// One measured cell: its row, and the step taken apart for those that are shown so.
struct StudyCell {
  CellSpec spec;
  CellResult result;
};

struct Study {
  StudyTraining training;
  std::vector<StudyCell> cells;
  double seconds = 0.0;
};

// Titled tables with a few plain sentences each.
struct StudySection {
  std::string title;
  std::string reading;  // what the tables show, in words and with this run's numbers
  std::vector<Table> tables;
};

std::vector<StudySection> study_sections(const Study& study);

// study.md: the sections, and the environment at the end.
std::string study_page(const std::vector<StudySection>& sections, const Json& environment);

}  // namespace tracestep::cli
