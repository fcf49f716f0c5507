package settle

import "strconv"

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func (c *canonWriter) digits() int {
	start := c.pos
	for c.pos < len(c.src) && isDigit(c.src[c.pos]) {
		c.pos++
	}
	return c.pos - start
}

// number writes the number at pos in its normal form. It looks at digits only
// where they stand, so 1e1000000000 costs what its twelve characters cost.
func (c *canonWriter) number() *requestError {
	start := c.pos
	negative := c.at('-')
	if negative {
		c.pos++
	}
	whole := c.pos
	wholeLen := c.digits()
	if wholeLen == 0 || wholeLen > 1 && c.src[whole] == '0' {
		return &requestError{Reason: "not a json number"}
	}
	frac, fracLen := c.pos, 0
	if c.at('.') {
		c.pos++
		frac = c.pos
		if fracLen = c.digits(); fracLen == 0 {
			return &requestError{Reason: "not a json number"}
		}
	}
	exponent := 0
	if c.at('e') || c.at('E') {
		c.pos++
		minus := c.at('-')
		if minus || c.at('+') {
			c.pos++
		}
		first := c.pos
		if c.digits() == 0 {
			return &requestError{Reason: "not a json number"}
		}
		for _, b := range c.src[first:c.pos] {
			if exponent <= maxNumberExponent { // saturates, never overflows
				exponent = exponent*10 + int(b-'0')
			}
		}
		if exponent > maxNumberExponent {
			return &requestError{Reason: "the number's exponent is out of range"}
		}
		if minus {
			exponent = -exponent
		}
	}
	if c.pos-start > maxNumberText {
		return &requestError{Reason: "the number is too long"}
	}
	// Significant digits are first..last-1 of the whole and fractional digits
	// read as one row.
	first, last := 0, wholeLen+fracLen
	digit := func(i int) byte {
		if i < wholeLen {
			return c.src[whole+i]
		}
		return c.src[frac+i-wholeLen]
	}
	for first < last && digit(first) == '0' {
		first++
	}
	if first == last {
		c.dst = append(c.dst, '0') // -0 and 0e9 are 0 as well
		return nil
	}
	for digit(last-1) == '0' {
		last--
	}
	exponent += wholeLen - last
	if last-first > maxNumberDigits {
		return &requestError{Reason: "the number has too many digits"}
	}
	if adjusted := exponent + last - first - 1; adjusted < minAdjustedExponent || adjusted > maxAdjustedExponent {
		return &requestError{Reason: "the number's exponent is out of range"}
	}
	if negative {
		c.dst = append(c.dst, '-')
	}
	if first < wholeLen {
		c.dst = append(c.dst, c.src[whole+first:whole+min(last, wholeLen)]...)
	}
	if last > wholeLen {
		c.dst = append(c.dst, c.src[frac+max(first-wholeLen, 0):frac+last-wholeLen]...)
	}
	if exponent != 0 {
		c.dst = append(c.dst, 'e')
		c.dst = strconv.AppendInt(c.dst, int64(exponent), 10)
	}
	return nil
}
