#include "fields/data_source.hpp"

#include <fstream>

#include "fields/option_values.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(DataSource, IsOneFileOrSeveralWithWeights) {
  EXPECT_EQ(read_sources("a.txt"), (std::vector<DataSource>{{"a.txt"}}));
  EXPECT_EQ(read_sources("a.jsonl:0.7,b.bin:0.3"),
            (std::vector<DataSource>{{"a.jsonl", 0.7}, {"b.bin", 0.3}}));
  EXPECT_EQ(read_sources("C:stuff"), (std::vector<DataSource>{{"C:stuff"}})) << "no weight";
  EXPECT_EQ(sources_text(read_sources("a.jsonl:0.7,b.bin:1")), "a.jsonl:0.7,b.bin:1");
  EXPECT_EQ(sources_text(read_sources("a.jsonl,b.bin")), "a.jsonl,b.bin");
  EXPECT_THROW(read_sources("a.jsonl:0.7,b.bin"), BadValue) << "what share the other has is not said";
  EXPECT_THROW(read_sources("a.txt:0"), BadValue);
  EXPECT_THROW(read_sources("a.txt:-2"), BadValue);
  EXPECT_EQ(names_of(read_sources("x/a.jsonl:0.7,b.bin:0.3")), "a.jsonl, b.bin");
}

TEST(DataSource, AFileThatIsThereMayHaveAnyName) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "moeloom-data-source";
  std::filesystem::create_directories(folder);
  const std::string odd = (folder / "a,b:2").string();
  std::ofstream(odd) << "x";
  EXPECT_EQ(read_sources(odd), (std::vector<DataSource>{{odd}}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace moeloom
