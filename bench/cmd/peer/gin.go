package main

import (
	"context"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/pulsegate/pulsegate/bench/answers"
)

// serveGin decodes and answers as in gin's documentation, and stores nothing.
func serveGin(ctx context.Context, l net.Listener, _ config) error {
	return serveHTTP(ctx, l, newGin(func(context.Context, *answers.Reading) error { return nil }))
}

// newGin returns a gin service that passes every reading to store. Unlike gin.Default
// it has no access log.
func newGin(store func(ctx context.Context, r *answers.Reading) error) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST(path, func(c *gin.Context) {
		var in answers.Reading
		if err := c.ShouldBindJSON(&in); err != nil {
			c.JSON(http.StatusBadRequest, answers.Status{Status: "not a reading"})
			return
		}
		if err := store(c.Request.Context(), &in); err != nil {
			c.JSON(http.StatusServiceUnavailable, answers.Status{Status: "not stored"})
			return
		}
		c.JSON(http.StatusOK, answers.Status{Status: "stored"})
	})
	return engine
}
