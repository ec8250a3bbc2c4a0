// Devices by the names that people type and drivers report, and what their table says of them.
#include "lab/predict/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/precision.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string named(std::string_view name) {
  const PublishedDevice* device = known_device(name);
  return device == nullptr ? "" : device->name;
}

std::string refusal_of(const std::string& name) {
  try {
    require_device("--published", name);
  } catch (const Error& error) {
    return error.what() + (" " + error.hint());
  }
  return "";
}

TEST(DevicesTest, ANameIsFoundAsPeopleTypeIt) {
  const std::map<std::string, std::string> expected = {{"rtx 4090", "RTX 4090"},
                                                       {"RTX4090", "RTX 4090"},
                                                       {"4090", "RTX 4090"},
                                                       {"rtx-4090 24GB", "RTX 4090"},
                                                       {"4090 laptop", "RTX 4090 Laptop"},
                                                       {"a100-80gb", "A100 SXM 80 GB"},
                                                       {"A100 40 GB", "A100 SXM 40 GB"},
                                                       {"a100 pcie 80g", "A100 PCIe 80 GB"},
                                                       {"h100", "H100 SXM"},
                                                       {"h100sxm5", "H100 SXM"},
                                                       {"H100-PCIe", "H100 PCIe"},
                                                       {"h100 nvl", "H100 NVL"},
                                                       {"v100 32gb", "V100 SXM2 32 GB"},
                                                       {"l4", "L4"},
                                                       {"l40s", "L40S"},
                                                       {"gb200 nvl72", "GB200"},
                                                       {"b200", "B200"},
                                                       {"mi300x", "MI300X"}};
  for (const auto& [typed, name] : expected) EXPECT_EQ(named(typed), name) << typed;
}

TEST(DevicesTest, SharesOfPeaksAreThoseOfTheGeneration) {
  const ReachedShares usual, &hopper = known_device("h100")->shares;
  EXPECT_EQ(known_device("t4")->shares.products, usual.products) << "nothing is known of it";
  EXPECT_EQ(known_device("h200")->shares.products, hopper.products);
  EXPECT_TRUE(hopper.adds_bytes);
  EXPECT_FALSE(known_device("a100-80gb")->shares.adds_bytes);
  EXPECT_LT(known_device("a100-80gb")->shares.attention, hopper.attention);
  EXPECT_NE(known_device("l40s")->shares.products, known_device("4090")->shares.products);
  for (const PublishedDevice& device : published_devices()) {
    for (const double share : {device.shares.products, device.shares.attention}) {
      EXPECT_TRUE(share > 0.1 && share <= 1) << device.name;
    }
  }
}

TEST(DevicesTest, ANameIsFoundAsDriversReportIt) {
  EXPECT_EQ(named("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(named("NVIDIA GeForce RTX 4060 Laptop GPU"), "RTX 4060 Laptop");
  EXPECT_EQ(named("NVIDIA A100-SXM4-40GB"), "A100 SXM 40 GB");
  EXPECT_EQ(named("NVIDIA A100 80GB PCIe"), "A100 PCIe 80 GB");
  EXPECT_EQ(named("NVIDIA H100 80GB HBM3"), "H100 SXM");
  EXPECT_EQ(named("Tesla V100-SXM2-16GB"), "V100 SXM2 16 GB");
  EXPECT_EQ(named("Tesla T4"), "T4");
  EXPECT_EQ(named("NVIDIA H200"), "H200");
}

TEST(DevicesTest, AnotherDeviceIsNotTakenForOneThatItsNameHolds) {
  // Each of these holds the name of a device that is known.
  for (const char* name : {"NVIDIA GeForce RTX 4080 SUPER", "RTX 4090 D", "RTX 4060", "NVIDIA L40",
                           "NVIDIA GH200 480GB", "NVIDIA H200 NVL", "NVIDIA H20",
                           "NVIDIA A100-SXM-64GB", "NVIDIA A10", "NVIDIA", "80 GB HBM4", ""}) {
    EXPECT_EQ(named(name), "") << name;
  }
  EXPECT_EQ(named(std::string(1000, 'a')), "");
}

TEST(DevicesTest, WhatANameLeavesOpenIsAskedFor) {
  EXPECT_THAT(refusal_of("80g"), AllOf(HasSubstr("\"80g\" may be "), HasSubstr("A100 SXM 80 GB"),
                                       HasSubstr("H100 PCIe")));
  EXPECT_THAT(refusal_of("h10"), HasSubstr("did you mean H100?"));
  EXPECT_THAT(refusal_of("4070"), HasSubstr("known are RTX 3090"));
  const DevicesOfName found = require_device("--published", "h100");
  ASSERT_EQ(found.others.size(), 2u);
  EXPECT_EQ(found.others.front()->name, "H100 PCIe");
  EXPECT_TRUE(require_device("--published", "h100 nvl").others.empty());
}

TEST(DevicesTest, OfCardsThatDifferInMemoryTheLargestIsMeant) {
  const DevicesOfName bare = require_device("--published", "A100");
  ASSERT_EQ(bare.devices.size(), 1u);
  EXPECT_EQ(bare.devices.front()->name, "A100 SXM 80 GB");
  ASSERT_EQ(bare.others.size(), 3u);
  EXPECT_EQ(bare.others.front()->name, "A100 SXM 40 GB");
  EXPECT_EQ(require_device("--published", "a100 pcie").devices.front()->name, "A100 PCIe 80 GB");
  EXPECT_EQ(require_device("--published", "a100-40gb").devices.front()->name, "A100 SXM 40 GB");
  EXPECT_EQ(known_device("A100"), nullptr) << "what a driver says names one card or none";
}

TEST(DevicesTest, EveryNameFindsItsOwnRow) {
  std::set<std::string> names;
  for (const PublishedDevice& d : published_devices()) {
    EXPECT_EQ(named(d.name), d.name);
    EXPECT_TRUE(names.insert(d.name).second) << d.name;
  }
}

// These relations hold for any GPU, so that a figure in the wrong column or unit shows.
TEST(DevicesTest, FiguresAreOfTheirKind) {
  for (const PublishedDevice& d : published_devices()) {
    SCOPED_TRACE(d.name);
    const double narrow = std::max(d.bf16_tflops, d.fp16_tflops);
    EXPECT_GT(narrow, 1.9 * d.fp32_tflops);
    if (d.tf32_tflops > 0) {
      EXPECT_GE(d.tf32_tflops, d.fp32_tflops);
      EXPECT_NEAR(narrow / d.tf32_tflops, 2, 0.03);
    }
    if (d.bf16_tflops > 0) {
      EXPECT_EQ(d.bf16_tflops, d.fp16_tflops);
    }
    if (d.fp8_tflops > 0) {
      EXPECT_NEAR(d.fp8_tflops / narrow, 2, 0.03);
    }
    EXPECT_LT(d.usable_gib, d.memory_gb);
    EXPECT_GT(d.usable_gib, 0.9 * d.memory_gb);
    EXPECT_EQ(d.link.empty(), d.link_gb_s == 0);
    EXPECT_EQ(d.link.empty(), d.link_ranks == 0);
    if (d.link_ranks > 0) {
      EXPECT_GT(d.link_gb_s, d.host_gb_s);
    }
    EXPECT_FALSE(d.source.empty());
    EXPECT_TRUE(
        std::set<std::string>({"measured", "reported", "estimated"}).contains(d.usable_from));
  }
}

TEST(DevicesTest, RanksOfOneHostHaveALink) {
  const PublishedDevice& h100 = *known_device("h100");
  EXPECT_EQ(h100.host_link_gb_s(8), 450);
  EXPECT_EQ(h100.host_link_gb_s(9), 0);
  const PublishedDevice& bridged = *known_device("h100 pcie");
  EXPECT_EQ(bridged.host_link_gb_s(2), 300);
  EXPECT_EQ(bridged.host_link_gb_s(4), bridged.host_gb_s);
  EXPECT_EQ(known_device("4090")->host_link_gb_s(2), 31.5);
  EXPECT_EQ(known_device("gb200")->host_link_gb_s(72), 900);
}

TEST(DevicesTest, ProductsRunAtTheRateOfTheirOperands) {
  const PublishedDevice& v100 = *known_device("v100 16gb");
  EXPECT_EQ(v100.product_tflops(parse_precision("", "fp16")), 125);
  EXPECT_EQ(v100.product_tflops(parse_precision("", "bf16")), 0);
  const PublishedDevice& h100 = *known_device("h100");
  EXPECT_EQ(h100.product_tflops(parse_precision("", "fp32")), 66.9);
  EXPECT_EQ(h100.product_tflops(parse_precision("", "tf32")), 494.5);
  EXPECT_EQ(h100.product_tflops(parse_precision("", "bf16-pure")), 989);
  EXPECT_NEAR(h100.product_tflops(parse_precision("", "fp32-split")), 989.0 / 3, 1e-9);
  EXPECT_EQ(v100.product_tflops(parse_precision("", "fp32-split")), 0) << "no kernels of its own";
}

TEST(DevicesTest, TheTableHasAllOfThem) {
  const Table table = device_table();
  EXPECT_EQ(table.rows.size(), published_devices().size());
  const std::size_t bf16 = table.index_of("bf16_tflops").value();
  for (const auto& row : table.rows) {
    if (row[0] == Json("T4")) {
      EXPECT_TRUE(row[bf16].is_null());
    }
  }
}

}  // namespace
}  // namespace tracestep
