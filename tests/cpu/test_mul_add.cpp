// mul_add of doubles in the baseline instruction set has the bits of std::fma, for numbers of every size and for zeros,
// subnormals, infinities and NaNs.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "csrc/cpu/vec.h"

namespace {

using npu_rope::DoubleVec;

std::mt19937_64 g_random(1);

double from_bits(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
uint64_t bits_of(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Returns a number whose exponent is at most `spread` from that of `near`. Half of the numbers have few bits, so that
// sums are ties or exact.
double number(int near, int spread) {
    uint64_t fraction = g_random() >> 12;
    if (g_random() % 2) fraction &= ~uint64_t{0} << (g_random() % 52);
    const double magnitude =
        std::ldexp(1.0 + double(fraction) * 0x1p-52, near + int(g_random() % (2 * spread + 1)) - spread);
    return g_random() % 2 ? magnitude : -magnitude;
}

const double kSpecial[] = {
    0.0,     -0.0,      1.0,      -1.0,     0x1p-1074, -0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023,
    0x1p990, -0x1p1000, 0x1p-900, INFINITY, -INFINITY, NAN,        0x1p-450,  -0x1.8p500};

bool is_same(DoubleVec a, DoubleVec b, DoubleVec c) {
    const DoubleVec result = npu_rope::mul_add(a, b, c);
    for (int lane = 0; lane < 2; ++lane) {
        const double expected = std::fma(a[lane], b[lane], c[lane]);
        if (std::isnan(expected) ? std::isnan(result[lane]) : bits_of(result[lane]) == bits_of(expected)) continue;
        std::printf("mul_add(%a, %a, %a) must be %a but is %a\n", a[lane], b[lane], c[lane], expected, result[lane]);
        return false;
    }
    return true;
}

}  // namespace

int main() {
    int wrong = 0, rounded_twice = 0;
    auto check = [&](double a, double b, double c) {
        wrong += !is_same(DoubleVec{a, b}, DoubleVec{b, a}, DoubleVec{c, c});
        rounded_twice += bits_of(a * b + c) != bits_of(std::fma(a, b, c));
    };
    for (int i = 0; i < 2000000 && wrong < 10; ++i) {
        const double a = number(0, 30), b = number(0, 30);
        check(a, b, number(std::ilogb(a * b), 3 + i % 120));
        const double product = a * b;
        check(a, b, -product);                                    // the product's error
        check(a, b, std::nextafter(-product, i % 2 ? 10 : -10));  // and its neighbour
        check(from_bits(g_random()), from_bits(g_random()), from_bits(g_random()));
        check(number(-500, 60), number(-460, 60), number(-1000, 70));  // around the smallest numbers
    }
    for (double a : kSpecial)
        for (double b : kSpecial)
            for (double c : kSpecial) check(a, b, c), check(a, b, number(0, 1000)), check(a, number(0, 500), c);
    // A lane that the C library computes beside one that it does not.
    for (double a : kSpecial)
        for (double b : kSpecial)
            for (double c : kSpecial) {
                const double x = number(0, 30), y = number(0, 30), z = number(0, 60);
                wrong += !is_same(DoubleVec{a, x}, DoubleVec{b, y}, DoubleVec{c, z}) +
                         !is_same(DoubleVec{x, a}, DoubleVec{y, b}, DoubleVec{z, c});
            }
    // Products that are 7 and 6 below half a unit of the sum's last place.
    check(896723.0, 40178290307.0, 0x1.0000000000001p108);
    check(2 * 36217.0, 497401731493.0, 0x1.0000000000001p108);
    std::printf("%d wrong; rounding twice gives other bits in %d cases\n", wrong, rounded_twice);
    return wrong != 0 || rounded_twice < 100000;
}
