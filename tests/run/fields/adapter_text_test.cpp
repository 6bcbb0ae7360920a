#include "fields/adapter_text.hpp"

#include "fields/option_values.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(AdapterText, IsReadAsItIsWritten) {
  for (const char* text : {"none", "r=16,alpha=32,targets=attention,experts",
                           "r=16,alpha=32,dropout=0.05,targets=attention,experts",
                           "r=8,alpha=0.5,rslora=true,init=gaussian,targets=router,*.q_proj"})
    EXPECT_EQ(adapter_text(read_adapter(text)), text);
  EXPECT_EQ(adapter_text(read_adapter("r=4")), "r=4,alpha=32,targets=attention,experts");
  EXPECT_EQ(adapter_text(read_adapter("r=4,dropout=0")), "r=4,alpha=32,targets=attention,experts");
  EXPECT_EQ(adapter_text(read_adapter("targets=mlp,shared,r=2")), "r=2,alpha=32,targets=mlp,shared");
}

TEST(AdapterText, SaysWhatItExpected) {
  for (const char* text :
       {"", "16", "r=", "r=0", "r=70000", "r=x", "alpha=-1", "dropout=1", "dropout=-0.1", "dropout=nan",
        "dropout=", "dora=true", "init=zeros", "r=4,attention", "targets=attention,,experts"})
    EXPECT_THROW(read_adapter(text), BadValue) << text;
}

}  // namespace
}  // namespace moeloom
