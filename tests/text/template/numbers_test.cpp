// Numbers of templates, as CPython formats, divides, compares, rounds and reads them.
#include "template/cases.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(TemplateNumbers, FormatsAFloatOfNoTypeToSoManyDigits) {
  expect_texts(
      {{"{{ '{:.3}|{:.2}|{:08.3}|{:+.3}|{:.1}|{:.1}'.format(3.0, 3.0, 3.0, 3.0, 0.0, 5.0) }}",
        "3.0|3.0|000003.0|+3.0|0e+00|5e+00"},
       {"{{ '{:.3}|{:.4}|{:.2}|{:.3}|{:.3}'.format(123.0, 123.0, 123.0, 99.99, 0.0001) }}",
        "1.23e+02|123.0|1.2e+02|1e+02|0.0001"},
       {"{{ '{:.20}|{:.17}|{:#.3}|{:#.3}|{:#.1}|{:,.6}'.format(1e17, 1e16, 3.0, 100.0, 3.0, 1234.0) }}",
        "100000000000000000.0|1e+16|3.00|1.00e+02|3.e+00|1,234.0"}});
}

TEST(TemplateNumbers, DividesAndComparesAsPython) {
  expect_texts(
      {{"{{ -0.3 // 0.1 }}|{{ -0.0 // 1 }}|{{ 0.0 // -1 }}|{{ 7.5 // -2 }}|{{ 1.0 // 0.1 }}",
        "-3.0|-0.0|-0.0|-4.0|9.0"},
       {"{{ -0.0 % 1 }}|{{ 6.0 % -3 }}|{{ -7.5 % 2 }}|{{ 1e300 // 1e-10 }}", "0.0|-0.0|0.5|inf"},
       {"{{ 9007199254740993 == 9007199254740992.0 }}{{ 9007199254740993 > 9007199254740992.0 }}",
        "FalseTrue"},
       {"{{ 2**63 == 9223372036854775808.0 }}{{ 2**100 < 1e40 }}{{ -2**100 > -1e40 }}{{ -3 > -3.5 }}",
        "TrueTrueTrueTrue"},
       {"{{ 9007199254740993 in [9007199254740992.0] }}{{ {2**100: 1}[2.0**100] }}", "False1"},
       {"{% set f = 'nan' %}{{ 1 < f|float }}{{ 1 == f|float }}", "FalseFalse"}});
  expect_errors({{"{{ 1e300 ** 2 }}", "Numerical result out of range"},
                 {"{{ 7 // 0.0 }}", "float floor division by zero"}});
}

TEST(TemplateNumbers, RoundsIntegersAndFloatsToTens) {
  expect_texts(
      {{"{{ 25|round(-1) }}|{{ true|round }}|{{ 1250|round(-2) }}|{{ -25|round(-1) }}|{{ 35|round(-1) }}",
        "20|1|1200|-20|40"},
       {"{{ 25.0|round(-1) }}|{{ 45.5|round(-1) }}|{{ 50.0|round(-2) }}|{{ -4.0|round(-2) }}|{{ "
        "1e22|round(-5) }}",
        "20.0|50.0|0.0|-0.0|1e+22"},
       {"{{ 123456789012345678901234567890|round(-20) }}|{{ 7|round(-45) }}|{{ 42|round(-1, 'ceil') }}",
        "123456789000000000000000000000|0|50.0"}});
}

TEST(TemplateNumbers, ReadsNumbersAsPythonOrSaysThatTheyDoNotFit) {
  expect_texts(
      {{"{{ '1_.5'|float(7) }}|{{ '+-5'|int(7) }}|{{ '+-5'|float(7) }}|{{ '1__0'|int(7) }}|{{ "
        "'nan(1)'|float(7) }}",
        "7|7|7|7|7"},
       {"{{ '1_0'|int }}|{{ '1_0.5_1'|float }}|{{ '0x_1f'|int(7, 16) }}|{{ '0_x1f'|int(7, 16) }}",
        "10|10.51|31|7"},
       {"{{ ' -0b1_1 '|int(7, 0) }}|{{ '012'|int(7, 0) }}|{{ '5'|int(7, 37) }}|{{ '0x'|int(7, 16) }}",
        "-3|12|5|7"},
       {"{{ '٣'|int(7) }}|{{ '٣.٥'|float(7) }}|{{ '１２'|int(7) }}|{{ '𝟗𝟎𝟙'|int }}|{{ '²'|int(7) }}",
        "3|3.5|12|901|7"},
       {"{{ 'inf'|int(3) }}{% set f = 'nan' %}{{ f|float|int(4) }}", "34"}});
  expect_errors({{"{{ 1e39|int }}", "does not fit"},
                 {"{{ '1e50'|int }}", "does not fit"},
                 {"{% set f = 'inf' %}{{ f|float|int }}", "cannot convert float infinity"}});
}

}  // namespace
}  // namespace moeloom
